#!/usr/bin/env python3
"""Writes what scripts/matrix.sh has found for one version of PyTorch into the table of docs/torch-versions.md.

    scripts/matrix_table.py build/matrix/2.14.1-cp311
"""

import json
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path

PAGE = Path(__file__).resolve().parents[1] / "docs" / "torch-versions.md"
HEAD = "| PyTorch | Python tests | PyTorch's distributed tests on CPU tensors | on the simulator |"


def python_tests(*paths):
    count = Counter()
    for path in paths:
        for suite in ElementTree.parse(path).getroot().iter("testsuite"):
            for what in ("tests", "failures", "errors", "skipped"):
                count[what] += int(suite.get(what, 0))
    failed = count["failures"] + count["errors"]
    return f"{count['tests'] - failed - count['skipped']} pass, {failed} fail"


def conformance(path):
    if not path.exists():
        return "not run"
    count = Counter(test["outcome"] for test in json.loads(path.read_text())["tests"])
    return f"{count['pass']} pass, {count['fail']} fail"


def main():
    folder = Path(sys.argv[1])
    python = folder / "venv" / "bin" / "python"
    version = subprocess.run([python, "-c", "import importlib.metadata as m; import torch.version as v; print(v.__version__)"],
                             check=True, capture_output=True, text=True, env={"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}).stdout.strip()  # fmt: skip
    row = [version, python_tests(folder / "python.xml", folder / "patches.xml"), *(conformance(folder / f"conformance-{kind}.json") for kind in ("cpu", "sim"))]
    lines = PAGE.read_text().splitlines()
    begin = lines.index(HEAD) + 2
    end = next(i for i in range(begin, len(lines)) if not lines[i].startswith("|"))
    rows = {line.split("|")[1].strip(): line for line in lines[begin:end]}
    rows[version] = "| " + " | ".join(row) + " |"
    key = lambda name: [int(part) for part in name.split("+")[0].split(".")]  # noqa: E731
    lines[begin:end] = [rows[name] for name in sorted(rows, key=key)]
    PAGE.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
