"""Runs the checks, each in a child process with a deadline, and shows what came out.

Children are forked from this process, which has imported torch and not used the device. Where a device does not survive
that, they are fresh interpreters instead; the second row finds out.
"""

from __future__ import annotations

import fnmatch
import json
import os
import platform
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from hccl_like import _imports, _tables
from hccl_like.conformance import processes
from hccl_like.conformance.vendor import _consequences as consequences
from hccl_like.conformance.vendor._check import BROKEN, CHECKS, NO, YES, Check, Missing, Row, first_line

_FORK = "processes.fork_before"
_FRESH = [sys.executable, "-m", "hccl_like.conformance.vendor._child"]


def main(device: str, timeout: float, patterns: list[str], json_path: str | None, list_only: bool, say: Callable) -> int:
    """0: nothing is broken; 1: something is; 2: there is no such device."""
    from hccl_like.conformance.vendor import _checks  # noqa: F401  they declare themselves

    if list_only:
        for check in CHECKS:
            say(f"{check.id}: {check.what}")
        return 0
    rows = _run(device, timeout, patterns)
    _show(device, rows)
    if json_path:
        Path(json_path).write_text(json.dumps(_document(device, rows), indent=1) + "\n", encoding="utf-8")
    if rows[0].id == "device.tensors" and rows[0].state != YES:
        return 2
    return 1 if any(row.state == BROKEN for row in rows) else 0


def _run(device: str, timeout: float, patterns: list[str]) -> list[Row]:
    first, second, *rest = CHECKS
    rows = [_in_child(first, device, timeout, fresh=True)]
    if rows[0].state != YES:
        return rows
    probe = Check(
        _FORK, "a process forked after 'import torch' can use the device", first.run,
        "ranks and data loaders may be forked", "start processes with 'spawn'; fork none from a process that imports torch", (),
    )  # fmt: skip
    rows.append(_in_child(probe, device, timeout, fresh=False))
    fresh = rows[1].state != YES
    rows.append(_in_child(second, device, timeout, fresh))
    if rows[-1].state == BROKEN:  # what is read is not what was written, so there is nothing more to find out
        return rows
    found = {row.id: row.state for row in rows}
    needed = _needed(rest, patterns)
    for check in needed:
        lacking = [id for id in check.needs if found.get(id) != YES]
        row = check.row_without(lacking[0]) if lacking else _in_child(check, device, timeout, fresh)
        found[check.id] = row.state
        rows.append(row)
    wanted = [row for row in rows if not patterns or _matches(row.id, patterns)]
    return wanted or rows[:1]


def _needed(checks: list[Check], patterns: list[str]) -> list[Check]:
    """Those asked for, and those that they need."""
    ids = {check.id for check in checks if not patterns or _matches(check.id, patterns)}
    for check in reversed(checks):
        if check.id in ids:
            ids.update(check.needs)
    return [check for check in checks if check.id in ids]


def _matches(id: str, patterns: list[str]) -> bool:
    return any(fnmatch.fnmatchcase(id, f"*{pattern}*") for pattern in patterns)


def _in_child(check: Check, device: str, timeout: float, fresh: bool) -> Row:
    read_end, write_end = os.pipe()
    with tempfile.TemporaryDirectory(prefix="conf_") as folder:
        output = os.path.join(folder, "output.txt")
        pid = _spawn(check.id, device, write_end, output) if fresh else _fork(check, device, write_end, output)
        os.close(write_end)
        answer, in_time = _read(read_end, time.monotonic() + timeout)
        os.close(read_end)
        processes.kill_group(pid)
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        _, status = os.waitpid(pid, 0)
        said = processes.tail(output)
    try:
        state, seen = json.loads(answer)
        return check.row(state, seen, "" if state == YES else said)
    except ValueError:
        code = os.waitstatus_to_exitcode(status)
        how = f"crashed: {signal.Signals(-code).name}" if code < 0 else f"the process ended with {code}"
        return check.row(BROKEN, how if in_time else f"hung: no answer within {timeout:g} s", said)


def _read(pipe: int, deadline: float) -> tuple[bytes, bool]:
    answer = b""
    while True:
        ready, _, _ = select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            return answer, False
        data = os.read(pipe, 1 << 16)
        if not data:
            return answer, True
        answer += data


def _fork(check: Check, device: str, pipe: int, output: str) -> int:
    _imports.ready()  # and torch is imported: once, for all children
    parent = os.getpid()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setsid()
        processes.die_with_parent(parent)
        processes.redirect_output(output)
        answer(check, device, pipe)
    finally:
        os._exit(0)


def _spawn(id: str, device: str, pipe: int, output: str) -> int:
    with open(output, "wb") as file:
        return subprocess.Popen(
            [*_FRESH, id, device, str(pipe)], pass_fds=(pipe,), stdout=file, stderr=file, start_new_session=True
        ).pid


def answer(check: Check, device: str, pipe: int) -> None:
    """Runs a check in this process and tells the result."""
    from hccl_like.conformance.vendor._device import Device

    _imports.ready()
    try:
        result = YES, check.run(Device(device)) or ""
    except Missing as missing:
        result = NO, str(missing)
    except Exception as error:
        import traceback

        traceback.print_exc()
        result = BROKEN, str(error) if isinstance(error, AssertionError) else first_line(error)
    os.write(pipe, json.dumps(result).encode())


def _show(device: str, rows: list[Row]) -> None:
    cells = [(row.id, row.state, row.what, "; ".join(part for part in (row.seen, row.meaning) if part)) for row in rows]
    _tables.show(f"what '{device}' offers", ("check", "state", "what", "seen; what follows"), cells)
    if len(rows) > 3:
        effects = [(what, NO if lacking else YES, ", ".join(lacking)) for what, lacking in consequences.of(rows)]
        _tables.show("what therefore works", ("what", "", "lacking"), effects)
    counts = Counter(row.state for row in rows)
    print(", ".join(f"{counts[state]} {state}" for state in (YES, NO, BROKEN)))


def _document(device: str, rows: list[Row]) -> dict:
    import torch

    return {
        "device": device,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "counts": {state: sum(row.state == state for row in rows) for state in (YES, NO, BROKEN)},
        "works": {what: not lacking for what, lacking in consequences.of(rows)},
        "rows": [row.to_json() for row in rows],
    }
