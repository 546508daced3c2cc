"""Drives CMake, which does the whole build; see process_group/CMakeLists.txt.

HCCL_LIKE_TORCH names the folders torch/ of the versions to build adapters for, separated by colons. Without it, it is the torch
that is installed beside this Python, and if there is none an adapter is compiled on first use (hccl_like/_adapters.py).
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.sdist import sdist

# Whatever the build starts must not load the backend that is being built.
os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"

ROOT = Path(__file__).resolve().parent
# The sources of an adapter, by their places in the repository. The system that builds the package gives nlohmann's header.
SOURCES = ["CMakeLists.txt", "cmake", "LICENSE", "core", "device", "transport", "collectives", "process_group", "python/bindings"]


def find_tool(name):
    """A tool beside this Python (from a wheel), else one on the path, else None."""
    beside = Path(sys.executable).parent / name
    return str(beside) if beside.exists() else shutil.which(name)


def base_version():
    return re.search(r"^project\(hccl_like VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text(), re.MULTILINE)[1]


def full_version():
    """With the revision of the sources: of a checkout, or the one that a source distribution was made from."""
    revision = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short=10", "HEAD"], capture_output=True, text=True).stdout.strip()
    made = ROOT / "python" / "hccl_like" / "_version.py"
    if not (ROOT / ".git").exists():
        found = re.search(r'^VERSION = "(.*)"', made.read_text(), re.MULTILINE) if made.exists() else None
        return found[1] if found else base_version()
    return f"{base_version()}+g{revision}" if revision else base_version()


def torches():
    """Folders of the torch packages to build adapters for."""
    if named := os.environ.get("HCCL_LIKE_TORCH"):
        return [Path(path).resolve() for path in named.split(os.pathsep)]
    # A build in isolation does not see the environment that it is for, but knows where that is.
    installed = Path(sysconfig.get_path("platlib")) / "torch"
    return [installed] if (installed / "include").is_dir() else []


class CMakeBuild(build_ext):
    """Configures once per Python version, builds what changed, and copies the libraries to where setuptools wants them."""

    def run(self):
        build = ROOT / "build" / f"cpython-{sys.version_info.major}{sys.version_info.minor}"
        made = build / "extension"
        inplace = self.inplace or self.editable_mode
        package = (ROOT / "python" if inplace else Path(self.build_lib)) / "hccl_like"
        version, adapters = full_version(), torches()
        write_version(package, version)
        self.spawn_cmake(build, made, version, adapters)
        for part in ("lib", "adapters", "plugins"):
            shutil.rmtree(package / part, ignore_errors=True)
            if (made / part).is_dir():
                shutil.copytree(made / part, package / part)
        copy_sdk(made / "sdk", package / "sdk")
        if not inplace:
            copy_sources(package / "sources")

    def spawn_cmake(self, build, made, version, adapters):
        cmake = find_tool("cmake")
        if cmake is None:
            sys.exit("hccl-like is built with CMake >= 3.22: install it with 'pip install cmake'")
        for part in ("lib", "adapters"):  # of another version, perhaps
            shutil.rmtree(made / part, ignore_errors=True)
        configure = [
            cmake, "-S", ROOT, "-B", build, *self.first_time(build),
            "-DCMAKE_BUILD_TYPE=" + ("Debug" if self.debug else "Release"),
            "-DHCCL_LIKE_PYTHON=ON", "-DHCCL_LIKE_TESTS=OFF", "-DHCCL_LIKE_BENCH=OFF",
            "-DHCCL_LIKE_PRECOMPILE=ON",
            f"-DPython3_EXECUTABLE={sys.executable}",
            f"-DHCCL_LIKE_VERSION={version}",
            f"-DHCCL_LIKE_TORCH={';'.join(map(str, adapters)) or 'none'}",
            f"-DHCCL_LIKE_EXTENSION_DIR={made}",
            *shlex.split(os.environ.get("CMAKE_ARGS", "")),
        ]  # fmt: skip
        ninja = find_tool("ninja")
        if ninja:
            configure += ["-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ninja}"]
        if self.run_tool(configure) != 0:
            # What an earlier build left may be of another checkout or another CMake.
            shutil.rmtree(build, ignore_errors=True)
            if self.run_tool(configure) != 0:
                sys.exit("hccl-like could not be configured; the lines above say why")
        jobs = os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL") or str(os.cpu_count() or 1)
        if self.run_tool([cmake, "--build", build, "--target", "hccl_like_python", "--parallel", jobs]) != 0:
            sys.exit("hccl-like could not be built; the lines above say why")

    def first_time(self, build):
        """A build from nothing compiles many files as one. A folder that has a build keeps the way it was configured."""
        return [] if (build / "CMakeCache.txt").exists() else ["-DHCCL_LIKE_UNITY=ON"]

    def run_tool(self, command):
        return subprocess.run([str(part) for part in command]).returncode


class SourceDistribution(sdist):
    """Notes the revision, which an unpacked one could not ask git for."""

    def run(self):
        write_version(ROOT / "python" / "hccl_like", full_version())
        super().run()


def write_version(package, version):
    package.mkdir(parents=True, exist_ok=True)
    path, text = package / "_version.py", f'"""Made by setup.py."""\n\nVERSION = "{version}"\n'
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def copy_sdk(made, sdk):
    """What a vendor needs beside hccl_like/sdk's own files: the two headers, and the contract where it could be built."""
    for header in ("device/plugin.h", "transport/module.h"):
        to = sdk / "include" / "hccl_like" / header
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / header, to)
    for library in made.glob("*.so"):
        shutil.copy2(library, sdk)


def copy_sources(target):
    """What an adapter is compiled from on a user's computer: process_group/, the bindings, and the headers below them."""
    shutil.rmtree(target, ignore_errors=True)
    for name in SOURCES:
        source = ROOT / name
        files = [source] if source.is_file() else [path for path in source.rglob("*") if path.is_file()]
        for file in files:
            wanted = file.suffix == ".h" or name in ("CMakeLists.txt", "cmake", "LICENSE", "process_group", "python/bindings")
            if wanted and not file.name.endswith(("_test.cc", "_test.h", ".pyc")):
                to = target / file.relative_to(ROOT)
                to.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(file, to)
    for folder in ("/usr/include", "/usr/local/include"):
        if (Path(folder) / "nlohmann/json.hpp").exists():
            shutil.copytree(Path(folder) / "nlohmann", target / "third_party/nlohmann")
            break


setup(
    version=base_version(),
    ext_modules=[Extension("hccl_like._C", sources=[])],
    cmdclass={"build_ext": CMakeBuild, "sdist": SourceDistribution},
)
