"""What a vendor gets with the package: a plugin of his own from a template, the contract, headers and a CMake package."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hccl_like import cli, sdk
from hccl_like.sdk import _contract, _template


def run(*command, site=None, **how):
    path = os.pathsep.join(map(str, filter(None, [site, *sys.path])))
    return subprocess.run(list(map(str, command)), env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=300, **how)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """(the folder of a new plugin, where it is installed)"""
    if shutil.which(os.environ.get("CC", "cc")) is None:
        pytest.skip("building a plugin takes a C compiler")
    folder, site = tmp_path_factory.mktemp("vendor") / "hccl-mine", tmp_path_factory.mktemp("site")
    done = run(sys.executable, "-m", "hccl_like", "new-plugin", "mine", folder)
    assert done.returncode == 0, done.stderr
    assert f"pip install {folder}" in done.stdout
    done = run(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--target", site, folder)
    assert done.returncode == 0, done.stderr
    return folder, site


@pytest.fixture
def contract():
    if not _contract._LIBRARY.exists():
        pytest.skip("the contract is not built: libgtest-dev has what it takes")


def test_a_new_plugin_installs_and_passes_its_own_tests(made, contract):
    folder, site = made
    done = run(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", folder / "tests", site=site)
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout + done.stderr


def test_it_is_found_and_torch_imports_beside_it(made):
    _, site = made
    done = run(sys.executable, "-c", "import torch, hccl_like; print(hccl_like.plugins()['mine'])", site=site)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(site)) and Path(done.stdout.strip()).exists()


def test_the_contract_fails_where_a_plugin_does(made, contract, tmp_path):
    folder = tmp_path / "broken"
    shutil.copytree(made[0] / "hccl_mine", folder)
    source = (folder / "plugin.c").read_text()
    (folder / "plugin.c").write_text(source.replace("memcpy(host, address(from), bytes)", "memset(host, 0, bytes)"))
    subprocess.run([os.environ.get("CC", "cc"), "-std=c99", "-shared", "-fPIC", f"-I{folder}", "-o", folder / "plugin.so", folder / "plugin.c"],
                   check=True)  # fmt: skip
    done = run(sys.executable, "-m", "hccl_like", "contract", folder / "plugin.so", "--gtest_filter=*CopiesAnyRange*")
    assert done.returncode == 1 and "FAILED" in done.stdout, done.stdout + done.stderr


def test_what_is_no_plugin_is_a_sentence(contract, capsys):
    assert cli.main(["contract", "/nowhere/plugin.so"]) == 2
    assert "/nowhere/plugin.so is neither a file nor a device with a plugin" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        cli.main(["contract", "x", "--repeat"])
    assert "Options beside the plugin are GoogleTest's" in capsys.readouterr().err


@pytest.mark.parametrize("name, told", [("NPU", "cannot be a device of torch"), ("npu", "exists and is not empty")])
def test_a_new_plugin_overwrites_nothing_and_has_a_name_of_torch(name, told, tmp_path, capsys):
    (tmp_path / "file").touch()
    with pytest.raises(SystemExit, match="2"):
        _template.main([name, str(tmp_path)])
    assert told in capsys.readouterr().err and os.listdir(tmp_path) == ["file"]


def test_cmake_finds_the_headers(tmp_path):
    if (cmake := shutil.which("cmake")) is None:
        pytest.skip("no CMake: pip install cmake")
    (tmp_path / "CMakeLists.txt").write_text("""
cmake_minimum_required(VERSION 3.22)
project(vendor C)
find_package(hccl_like REQUIRED CONFIG)
add_library(both OBJECT both.c)
target_link_libraries(both PRIVATE hccl_like::plugin hccl_like::module)
""")
    (tmp_path / "both.c").write_text('#include "device/plugin.h"\n#include "transport/module.h"\nhcd_api api;\n')
    where = run(sys.executable, "-m", "hccl_like.sdk", "--cmake-dir").stdout.strip()
    assert where == sdk.cmake_dir()
    for command in ([cmake, "-S", tmp_path, "-B", tmp_path / "build", f"-Dhccl_like_DIR={where}"], [cmake, "--build", tmp_path / "build"]):
        done = run(*command)
        assert done.returncode == 0, done.stdout + done.stderr
