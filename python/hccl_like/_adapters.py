"""Finds the adapter for the torch of this process, and compiles one where the package has none.

An adapter is the part of hccl-like that is compiled against torch's headers: the extension module ``hccl_like._C``. c10d's C++
interface changes between minor versions of torch, so each has an adapter of its own in ``adapters/torch_2_13`` and the like. All of
them load ``lib/libhccl_like-VERSION.so``, which knows nothing of torch.

For a torch without an adapter (a nightly, a vendor's own build) the first use compiles one from the sources in the package, into the
user's cache, while the other ranks of the host wait.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.machinery
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent
_MODULE = "_C" + importlib.machinery.EXTENSION_SUFFIXES[0]
_BUILDS = ("", "cpu", "cu", "cuda", "rocm", "xpu")  # PyTorch's own, without the numbers behind
_LIMIT = 1800.0  # seconds, after which a compiler must hang


class NoAdapter(ImportError):
    """There is no adapter for this torch, and none can be compiled; says what to do."""


def built_for() -> list[str]:
    """The minor versions of torch that the package has adapters for, as "2.13", oldest first."""
    found = (path.parent.name for path in (_PACKAGE / "adapters").glob(f"torch_*/{_MODULE}"))
    return [f"{major}.{minor}" for major, minor in sorted(tuple(map(int, name.split("_")[1:])) for name in found)]


def minor_version(version: str) -> str | None:
    """ "2.13" of a release of PyTorch's own; None of a build whose C++ interface may be another, as nightlies and forks have."""
    release, _, build = version.partition("+")
    numbers = release.replace(".post", "", 1).split(".")
    if len(numbers) != 3 or not all(map(str.isdigit, numbers)) or build.rstrip(".0123456789") not in _BUILDS:
        return None
    return ".".join(numbers[:2])


def is_built() -> bool:
    """Whether the package has its library. Does not import torch."""
    return len(list((_PACKAGE / "lib").glob("libhccl_like-*.so"))) == 1


def find() -> Path:
    """The module file for this torch, compiled now if it has to be. Raises NoAdapter."""
    path = _path()
    if not path.exists():
        _compile(path)
    return path


def exists() -> bool:
    """Whether find() has nothing to compile. Raises NoAdapter if it has, and cannot."""
    if _path().exists():
        return True
    _sources()
    _check_tools()
    return False


def where() -> str:
    """The adapter for this torch in words."""
    try:
        return str(_path()) if exists() else f"none yet: the first use compiles {_path()}"
    except NoAdapter:
        return "none"


def _path() -> Path:
    import torch

    minor = minor_version(torch.__version__)
    path = _PACKAGE / "adapters" / f"torch_{(minor or '').replace('.', '_')}" / _MODULE
    return path if path.exists() else _cache() / _key() / _MODULE


def core() -> Path:
    """libhccl_like of this package."""
    if not is_built():
        raise NoAdapter(
            f"hccl-like is not built: there is no libhccl_like in {_PACKAGE / 'lib'}. Build it with 'pip install .' in its source folder"
        )
    return next((_PACKAGE / "lib").glob("libhccl_like-*.so"))


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hccl_like"


def _key() -> str:
    """All that an adapter depends on."""
    import torch

    about = [core(), core().stat().st_mtime_ns, torch.__version__, torch.version.git_version, Path(torch.__file__).parent, _MODULE]
    return f"torch-{torch.__version__}-" + hashlib.sha256(repr([str(part) for part in about]).encode()).hexdigest()[:16]


def _why() -> str:
    import torch

    if not built_for():
        return f"hccl-like was built where torch was not installed, and has no adapter for this torch {torch.__version__}"
    return f"hccl-like has adapters for torch {', '.join(built_for())} and this is torch {torch.__version__}"


def _instead() -> str:
    """What to do where no adapter can be compiled on first use. pip's cache may hold the package that was built without torch."""
    if not built_for():
        return "install hccl-like again now that torch is there ('pip install --no-cache-dir --force-reinstall --no-deps ...')"
    return "install a torch that it has one for"


def _sources() -> Path:
    for folder in (_PACKAGE / "sources", _PACKAGE.parents[1]):
        if (folder / "process_group" / "CMakeLists.txt").exists():
            return folder
    raise NoAdapter(f"{_why()}; there are no sources to compile one from: install hccl-like again")


def _tool(*names: str) -> str | None:
    beside = (str(path) for name in names if (path := Path(sys.executable).parent / name).exists())
    return next(beside, None) or next(filter(None, map(shutil.which, names)), None)


def _check_tools() -> None:
    """Raises NoAdapter with what must be installed before an adapter can be compiled."""
    missing = []
    if _tool(os.environ.get("CXX") or "g++", "c++") is None:
        missing.append("g++ 12 or newer ('apt-get install g++' or 'dnf install gcc-c++')")
    if _tool("cmake") is None:
        missing.append("CMake ('pip install cmake')")
    if _tool("ninja", "make") is None:
        missing.append("ninja ('pip install ninja') or make")
    import sysconfig  # it imports much

    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        missing.append(f"the headers of Python {sys.version_info.major}.{sys.version_info.minor} ('apt-get install python3-dev')")
    if missing:
        raise NoAdapter(f"{_why()}. To compile one, install {' and '.join(missing)}; or {_instead()}")


def _compile(target: Path) -> None:
    sources, library = _sources(), core()
    _check_tools()
    target.parent.mkdir(parents=True, exist_ok=True)
    with open(target.parent / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # ranks of one host come at the same time
        if not target.exists():
            _run_cmake(sources, library, target)


def _run_cmake(sources: Path, library: Path, target: Path) -> None:
    import torch

    begin = time.monotonic()
    print(f"{_why()}: compiling one in {target.parent}, once; this takes some minutes", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        build = Path(folder)
        generator = ["-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={_tool('ninja')}"] if _tool("ninja") else []
        configure = [
            _tool("cmake"), "-S", sources, "-B", build / "build", *generator, "-DCMAKE_BUILD_TYPE=Release",
            "-DHCCL_LIKE_UNITY=ON", "-DHCCL_LIKE_PRECOMPILE=ON", f"-DHCCL_LIKE_CORE={library}",
            f"-DHCCL_LIKE_TORCH={Path(torch.__file__).parent}", f"-DHCCL_LIKE_EXTENSION_DIR={build / 'made'}",
            f"-DPython3_EXECUTABLE={sys.executable}",
        ]  # fmt: skip
        compile_all = [_tool("cmake"), "--build", build / "build", "--target", "hccl_like_python", "--parallel", str(os.cpu_count() or 1)]
        with open(target.parent / "log", "w") as log:
            for command in (configure, compile_all):
                _run([str(part) for part in command], log, begin)
        made = list((build / "made" / "adapters").glob(f"*/{_MODULE}"))
        made[0].replace(target)
    print(f"hccl-like's adapter for torch {torch.__version__} took {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)


def _run(command: list[str], log, begin: float) -> None:
    """A step of the build; a line on standard error every half minute says that it goes on."""
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=environment)
    over = threading.Event()

    def tell() -> None:
        while not over.wait(30):
            print(f"hccl-like: still compiling, after {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)

    threading.Thread(target=tell, daemon=True).start()
    try:
        code = process.wait(timeout=_LIMIT)
    except BaseException:
        process.kill()
        process.wait()
        raise
    finally:
        over.set()
    if code != 0:
        raise NoAdapter(
            f"{_why()}, for which it could not compile one: {log.name} has what the compiler says. "
            f"To go on, {_instead()}"
        )
