"""The least time that memory allows for a row: the C++ benchmark measures it, with plain loops over the same sizes."""

import json
import os
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]  # of a checkout
SECONDS = 120


def program(given: str) -> Path:
    """The C++ benchmark: the one named, or the newest that is built here."""
    found = [Path(given)] if given else sorted(ROOT.glob("build/*/bench/hccl_like_perf"), key=lambda p: p.stat().st_mtime)
    if not found or not found[-1].exists():
        raise SystemExit(f"no floor without the C++ benchmark: build {given or 'hccl_like_perf'} in a checkout (see bench/README.md), and name it: --floor PERF")
    return found[-1]


def measure(perf: Path, args, row: dict, ranks: int, cores: set[int]) -> dict[str, float | None]:
    """Microseconds for each form of the row, on these cores; None where nothing that counts must move. Started on one rank,
    while the others wait."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "row.json"
        command = [perf, args.collective, "-g", ranks, "-b", row["size"], "-e", row["size"], "-d", row["type"], "-n", 5, "-w", 0,
                   "-c", 0, "--floor", "-J", file, *(["--dirty"] if args.dirty else []), *(["--pin"] if args.pin else [])]
        subprocess.run([str(part) for part in command], check=True, stdout=subprocess.DEVNULL, timeout=SECONDS,
                       preexec_fn=lambda: os.sched_setaffinity(0, cores))  # this rank may be tied to one
        measured = json.loads(file.read_text())["results"][0]
    return {form: (measured[form] or {}).get("floor_us") for form in ("out_of_place", "in_place")}
