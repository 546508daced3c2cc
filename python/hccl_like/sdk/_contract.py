"""``hccl-like contract``: the tests that every device plugin must pass, without a compiler."""

from __future__ import annotations

import argparse
import ctypes
import os
import sys
from pathlib import Path

from hccl_like import _plugins

_LIBRARY = Path(__file__).resolve().parent / "hccl_like_contract.so"


def main(argv: list[str]) -> int:
    """Returns the exit code: 0 if all tests pass, 1 if not, 77 if the plugin finds no device here, 2 for wrong use."""
    parser = argparse.ArgumentParser(
        prog="hccl-like contract",
        description="Puts a device plugin to its contract: some thirty tests of its entries, on memory from mem_alloc.",
        epilog="Example: hccl-like contract build/libmydevice_plugin.so --gtest_filter='*Copies*'. The exit code is 77 if the plugin "
        "says that there is no device.",
    )
    parser.add_argument("plugin", help="the library, or the name of a device whose package has one")
    options, of_gtest = parser.parse_known_args(argv)
    if wrong := [option for option in of_gtest if not option.startswith("--gtest_")]:
        parser.error(f"what is {wrong[0]}? Options beside the plugin are GoogleTest's, --gtest_...")
    if not _LIBRARY.exists():
        print("this installation of hccl-like has no contract: install libgtest-dev and build it again, or take a wheel", file=sys.stderr)
        return 2
    found = _plugins.found().get(options.plugin)
    if isinstance(found, Exception):
        print(f"the plugin of {options.plugin} cannot be used: {found}", file=sys.stderr)
        return 2
    path = found or os.path.abspath(options.plugin)
    if not os.path.exists(path):
        print(f"{options.plugin} is neither a file nor a device with a plugin", file=sys.stderr)
        return 2
    arguments = [b"hccl-like contract", os.fsencode(path), *map(os.fsencode, of_gtest)]
    run = ctypes.CDLL(str(_LIBRARY)).hccl_like_plugin_contract
    sys.stdout.flush()
    return run(len(arguments), (ctypes.c_char_p * (len(arguments) + 1))(*arguments, None))
