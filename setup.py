"""Drives CMake, which does the whole build; see process_group/CMakeLists.txt."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

# Whatever the build starts must not load the backend that is being built.
os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"

ROOT = Path(__file__).resolve().parent


def find_tool(name):
    """A tool beside this Python (from a wheel), else one on the path, else None."""
    beside = Path(sys.executable).parent / name
    return str(beside) if beside.exists() else shutil.which(name)


class CMakeBuild(build_ext):
    """Configures once per Python version, builds what changed, and copies the module to where setuptools wants it."""

    def build_extension(self, ext):
        cmake = find_tool("cmake")
        if cmake is None:
            sys.exit("hccl-like is built with CMake >= 3.22: install it with 'pip install cmake'")
        build = ROOT / "build" / f"cpython-{sys.version_info.major}{sys.version_info.minor}"
        made = build / "extension"
        self.spawn_cmake(cmake, build, made)
        target = Path(self.get_ext_fullpath(ext.name)).resolve()
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(made / Path(self.get_ext_filename(ext.name)).name, target)
        for plugin in (made / "plugins").glob("*.so"):  # of devices that could be built for
            (target.parent / "plugins").mkdir(exist_ok=True)
            shutil.copy2(plugin, target.parent / "plugins")

    def spawn_cmake(self, cmake, build, made):
        configure = [
            cmake, "-S", ROOT, "-B", build, *self.first_time(build),
            "-DCMAKE_BUILD_TYPE=" + ("Debug" if self.debug else "Release"),
            "-DHCCL_LIKE_PYTHON=ON", "-DHCCL_LIKE_TESTS=OFF", "-DHCCL_LIKE_BENCH=OFF",
            "-DHCCL_LIKE_PRECOMPILE=ON",
            f"-DPython3_EXECUTABLE={sys.executable}",
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
        if self.run_tool([cmake, "--build", build, "--target", "_C", "--parallel", jobs]) != 0:
            sys.exit("hccl-like could not be built; the lines above say why")

    def first_time(self, build):
        """A build from nothing compiles many files as one. A folder that has a build keeps the way it was configured."""
        return [] if (build / "CMakeCache.txt").exists() else ["-DHCCL_LIKE_UNITY=ON"]

    def run_tool(self, command):
        return subprocess.run([str(part) for part in command]).returncode


setup(
    ext_modules=[Extension("hccl_like._C", sources=[])],
    cmdclass={"build_ext": CMakeBuild},
)
