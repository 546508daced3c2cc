"""``hccl-like new-plugin``: a package with a device plugin that builds, and keeps the contract, before a line of it is changed."""

from __future__ import annotations

import argparse
import re
import shutil
import sys
from pathlib import Path

from hccl_like import sdk

_TEMPLATE = Path(__file__).resolve().parent / "template"


def main(argv: list[str]) -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="hccl-like new-plugin",
        description="Writes a Python package with a device plugin in C. Its device is host memory: put your runtime's functions in the "
        "place of the C library's.",
        epilog="Example: hccl-like new-plugin npu hccl-npu && pip install ./hccl-npu && pytest hccl-npu/tests",
    )
    parser.add_argument("name", help="what torch calls your device, e.g. npu")
    parser.add_argument("folder", type=Path, help="the folder to make")
    options = parser.parse_args(argv)
    if not re.fullmatch(r"[a-z][a-z0-9_]*", options.name):
        parser.error(f"'{options.name}' cannot be a device of torch: write lower-case letters, digits and underscores")
    if options.folder.exists() and any(options.folder.iterdir()):
        parser.error(f"{options.folder} exists and is not empty")
    write(options.name, options.folder)
    print(f"{options.folder} has a plugin for '{options.name}'. Next:\n\n"
          f"  pip install {options.folder}\n  pytest {options.folder}/tests\n"
          f"  hccl-like info            # lists it\n\n"
          f"then open {options.folder / f'hccl_{options.name}' / 'plugin.c'}, and docs/plugin-guide.md of hccl-like beside it.")
    return 0


def write(name: str, folder: Path) -> None:
    package = folder / f"hccl_{name}"
    for source in sorted(path for path in _TEMPLATE.rglob("*") if path.is_file() and "__pycache__" not in path.parts):
        relative = source.relative_to(_TEMPLATE)
        target = folder / Path(*(f"hccl_{name}" if part == "package" else part for part in relative.parts)).with_suffix("")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(source.read_text(encoding="utf-8").replace("@NAME@", name), encoding="utf-8")
    header = package / "device" / "plugin.h"
    header.parent.mkdir()
    try:
        shutil.copy2(Path(sdk.include_dir()) / "device" / "plugin.h", header)
    except FileNotFoundError:
        shutil.rmtree(folder)
        sys.exit("this installation of hccl-like has no headers: build it with 'pip install .' in its source folder")
