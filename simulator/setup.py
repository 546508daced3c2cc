"""Builds the wheel: drives CMake and puts what it made into the package. Everything else is in pyproject.toml.

HCCL_LIKE_TORCH names the versions of torch to build for, as in hccl-like's setup.py. Without it, it is the one that is installed.
"""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

HERE = Path(__file__).parent.resolve()


class CMakeBuild(build_ext):
    def run(self):
        package = HERE / "torch_sim" if self.editable_mode else Path(self.build_lib).resolve() / "torch_sim"
        build = Path(os.environ.get("TORCH_SIM_BUILD_DIR", self.build_temp)).resolve()
        jobs = os.environ.get("MAX_JOBS", str(os.cpu_count()))
        torch = os.environ.get("HCCL_LIKE_TORCH", "").replace(os.pathsep, ";")
        # A build from nothing compiles a folder as one. A folder that has a build keeps the way it was configured.
        unity = [] if (build / "CMakeCache.txt").exists() else ["-DTORCH_SIM_UNITY=ON"]
        # fmt: off
        subprocess.check_call(["cmake", "-S", HERE, "-B", build, "-G", "Ninja", *unity, f"-DHCCL_LIKE_TORCH={torch}",
                               f"-DCMAKE_MAKE_PROGRAM={shutil.which('ninja')}",  # a build in isolation has one of its own each time
                               f"-DPython3_EXECUTABLE={sys.executable}", f"-DTORCH_SIM_DESTINATION={package}",
                               *shlex.split(os.environ.get("CMAKE_ARGS", ""))])
        subprocess.check_call(["cmake", "--build", build, "--parallel", jobs])
        subprocess.check_call(["cmake", "--install", build])
        # fmt: on


setup(ext_modules=[Extension("torch_sim._C", sources=[])], cmdclass={"build_ext": CMakeBuild})
