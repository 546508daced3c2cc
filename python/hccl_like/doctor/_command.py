"""The command: options, order, output."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

from hccl_like import _imports
from hccl_like.doctor import _device, _host, _job, _parts, _self_test
from hccl_like.doctor._findings import Findings


def main(argv: list[str] | None) -> int:
    parser = argparse.ArgumentParser(
        prog="hccl-like doctor",
        description="Examines what hccl-like needs in this environment and on this host, and lets two ranks try it. Under a launcher each rank of the "
        "job examines itself, and rank 0 compares: versions, settings, limits, cores, clocks, and a first all_reduce over all connections.",
        epilog="The exit code is 0 if everything is in order, else 1. Example: torchrun --nnodes=2 --nproc-per-node=4 ... -m hccl_like.doctor",
    )
    parser.add_argument("--device", help="the device to look at (default: the accelerator of this process, else cpu)")
    _imports.add_option(parser)
    parser.add_argument("--json", metavar="FILE", help="write what was found as JSON, too")
    parser.add_argument("--no-self-test", action="store_true", help="start no ranks")
    options = parser.parse_args(argv)
    _imports.apply(options)
    _imports.after_torch()
    findings = Findings()
    job = _job.launched()
    examine(findings, options.device, self_test=not options.no_self_test, job=job)
    if job and os.environ["RANK"] != "0":
        return 1 if findings.problems else 0
    # The first line is the answer.
    for problem in findings.problems:
        print(f"problem: {problem}")
    for hint in findings.hints:
        print(f"hint: {hint}")
    if not findings.problems:
        print("everything is in order")
    print()
    findings.show()
    if options.json:
        Path(options.json).write_text(json.dumps(findings.to_json(), indent=1) + "\n", encoding="utf-8")
    return 1 if findings.problems else 0


def examine(findings: Findings, device: str | None, self_test: bool, job: bool = False) -> None:
    if not _parts.examine(findings):
        return
    from hccl_like import _registration

    _host.examine(findings)
    name = (device or _registration.accelerator_name() or "cpu").partition(":")[0]
    if job:
        return _job.examine(name, findings)
    works = name == "cpu" or _device.examine(name, findings)
    if self_test:
        _self_test.examine(name if works else "cpu", findings)
