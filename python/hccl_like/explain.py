"""``hccl-like explain``: how a collective would go, by which algorithm, and what that looks like."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from hccl_like import _pictures, _tables, tune

if TYPE_CHECKING:
    import torch

    from hccl_like import schedule

_PROFILE = "HCCL_LIKE_PROFILE"

# By what _C.way() says.
_WAYS = {
    "board": "over the host's board in shared memory, without messages and without an algorithm",
    "direct": "directly between the ranks' memory, without messages and without an algorithm: memory that ranks can map is read and "
    "written in place, all other passes through shared memory",
    "streams": "by streams of the devices, which read each other's memory, without the host (docs/devices.md)",
    "phases": "in phases: within each host by streams of the devices, and between hosts through the host, of n ranks of a host with 1/n of "
    "the bytes each (docs/devices.md)",
    "messages": "by messages; the first algorithm is used",
}
# Of a picture that can still be looked at.
_MOST_RANKS, _MOST_USES = 32, 20_000


def main(argv: list[str] | None = None) -> int:
    """Returns 0, or 1 if there is no such call or algorithm."""
    parser = argparse.ArgumentParser(
        prog="hccl-like explain",
        description="How a collective of float32 would go: over the board of one host, directly between the ranks' memory, or by "
        "messages, and which algorithms there are for messages, fastest first as the cost model sees it. The settings in force "
        "count; if HCCL_LIKE_PROFILE names a profile, what hccl-like tune measured is shown, too.",
        epilog="example: hccl-like explain all_reduce 16M 4 --hosts 4 --algorithm ring --rounds --svg ring.svg",
    )
    add = parser.add_argument
    add("collective", help="as PyTorch calls it: all_reduce, all_gather, reduce_scatter, broadcast, all_to_all, ...")
    add("bytes", type=_bytes, help="all chunks together, the larger of input and output (4096, 64K, 16M)")
    add("ranks", type=int, help="ranks in the group")
    add("--hosts", type=int, default=1, help="hosts that the ranks fill in order (1: all are on this one)")
    add("--device", help="of the tensors, if not the host's: sim, or sim:1")
    add("--compression", metavar="FORMAT", help="of messages between hosts: mx8, mx4, bf16 or none (HCCL_LIKE_COMPRESSION, or that of the group's Options)")
    add("--own", metavar="WHAT", help="an algorithm of your own, proved and priced beside the others, and its rounds: the name "
        "that a package publishes, FILE.py:NAME, or a file in JSON or of MSCCL (docs/own-algorithms.md)")  # fmt: skip
    add("--algorithm", metavar="NAME", help="the algorithm that the next three options show (the first of the list, or that of --own)")
    add("--rounds", action="store_true", help="print its rounds, for each rank")
    add("--svg", metavar="FILE", help="draw its rounds")
    add("--timeline", metavar="FILE", help="draw what each rank sends and receives, slice by slice, on the cost model's clock, as SVG")
    add("--json", action="store_true", help="one JSON object: the way, and the algorithms with their times")
    asked = parser.parse_args(argv)
    if asked.own and asked.algorithm:
        parser.error("--own names the algorithm; leave --algorithm out")
    try:
        _explain(asked)
    except (ImportError, OSError, RuntimeError, ValueError) as error:
        if isinstance(error, ModuleNotFoundError) and error.name == "torch":
            raise  # hccl_like.cli says what to install
        print(error, file=sys.stderr)
        return 1
    return 0


def _explain(asked: argparse.Namespace) -> None:
    from hccl_like import _extension, _plugins, schedule

    if asked.compression:
        os.environ["HCCL_LIKE_COMPRESSION"] = asked.compression
    each = -(-asked.ranks // max(1, asked.hosts))
    call = (asked.collective, asked.bytes, [rank // each for rank in range(asked.ranks)])
    if asked.device:
        _plugins.register(_extension.load())
    way = _extension.load().way(*call, device=_with_index(asked.device))
    own = schedule.named(asked.own, asked.collective) if asked.own else _of_settings(asked.collective)
    if own:
        own.prove(call[2])
    own_json = own.to_json(call[2]) if own else ""
    rows = _extension.load().explain(*call, own=own_json)
    title = f"{asked.collective} of {asked.bytes} bytes on {asked.ranks} ranks goes {_WAYS[way]}"
    device = asked.device.partition(":")[0] if _with_index(asked.device) else None
    profile = tune.in_profile(os.environ.get(_PROFILE), _extension.load().layout_name(call[2]), asked.collective, asked.bytes, device)
    compression = _compression(*call, rows[0][0]) if way == "messages" and not own else None
    measured_bytes, measured = (None, {}) if compression else (profile.bytes, profile.seconds)  # tune measures without
    chosen = None  # by the profile, as communicator_messages.cc chooses
    if way == "messages" and not _forced(asked.collective) and os.environ.get("HCCL_LIKE_DETERMINISTIC", "0") == "0":
        chosen = next((row[0] for row in rows if row[0] == profile.best), None)
        rows.sort(key=lambda row: row[0] != chosen)
    path_us = measured[tune.path(way)] * 1e6 if tune.path(way) in measured else None
    if asked.json:
        print(json.dumps({"way": way, "measured_us": path_us, "algorithms": [
            {"name": name, "slices": slices, "estimate_us": microseconds, "measured_us": measured[name] * 1e6 if name in measured else None}
            for name, slices, microseconds in rows], "measured_bytes": measured_bytes, "chosen_by_profile": chosen, "compression": compression}))  # fmt: skip
        return
    if os.environ.get(_PROFILE):
        print(f"the profile {os.environ[_PROFILE]} {_said(chosen, measured_bytes, path_us)}")
    wanted = os.environ.get("HCCL_LIKE_COMPRESSION", "none")
    if compression:
        print(f"compressed with {wanted}: {compression['bytes_between_hosts']} bytes leave a host instead of {compression['uncompressed_bytes']}. "
              "The estimates have fewer bytes, but no time to encode and decode")
    elif wanted != "none":
        print(f"not compressed with {wanted}, which is for all_reduce, reduce_scatter and all_gather between hosts, "
              "of 64 KiB or more for each rank of a host")
    if way != "messages":
        print(f"{title}\n")
        title = f"by messages, if HCCL_LIKE_ALGO={asked.collective}:NAME asked for one of these"
    columns = ("algorithm", "slices", "estimate us", *([f"measured us, {measured_bytes} bytes"] if measured else []))
    _tables.show(title, columns, [
        (name, str(slices), f"{microseconds:.2f}", *([f"{measured[name] * 1e6:.2f}" if name in measured else "-"] if measured else []))
        for name, slices, microseconds in rows])  # fmt: skip
    if own and asked.own:
        print(f"\n{own.collective}:{own.name} is proved for {asked.ranks} ranks. Its rounds:\n{own.text(call[2])}")
    if asked.rounds or asked.svg or asked.timeline:
        _show(asked, _extension.load().plan(*call, algorithm=asked.algorithm or (own.name if own else ""), own=own_json), bool(asked.own))


def _compression(collective: str, bytes: int, layout: list[int], algorithm: str) -> dict[str, int | str] | None:
    """None: the messages of such a call are not compressed."""
    from hccl_like import _extension

    wanted = os.environ.get("HCCL_LIKE_COMPRESSION", "none")
    if wanted == "none":
        return None
    floats, sent = _extension.load().bytes_between_hosts(collective, bytes, layout, algorithm)
    return {"format": wanted, "bytes_between_hosts": sent, "uncompressed_bytes": floats} if sent < floats else None


def _said(chosen: str | None, measured_bytes: int | None, path_us: float | None) -> str:
    """What the profile has of the call."""
    if chosen:
        return f"is used: it chooses {chosen}" + (f", measured at {measured_bytes} bytes" if measured_bytes is not None else "")
    if path_us is not None:
        return f"has measured this path: {path_us:.2f} us at {measured_bytes} bytes. A path without messages is not chosen from a profile"
    if measured_bytes is not None:
        return "has measured such calls and chooses nothing for this one"
    return "has nothing for this call on this layout: it is not used"


def _of_settings(collective: str) -> schedule.Algorithm | None:
    """The algorithm of the user's own that HCCL_LIKE_ALGO names, which the extension does not know before a group is made."""
    from hccl_like import schedule

    name = _forced(collective)
    return schedule.find(collective, name) if name else None


def _forced(collective: str) -> str | None:
    """The algorithm that HCCL_LIKE_ALGO names."""
    choices = (choice.partition(":") for choice in os.environ.get("HCCL_LIKE_ALGO", "").split(";"))
    return next((name.strip() for which, _, name in choices if which.strip() == collective), None)


def _show(asked: argparse.Namespace, plan: tuple[str, int, list[str], list[_pictures.Use]], printed: bool) -> None:
    name, slices, texts, uses = plan
    what = f"{asked.collective}:{name}, {asked.ranks} ranks"
    if asked.rounds and not printed:
        print(f"The rounds of {what}:")
        print("\n".join(f"rank {rank}\n{text.rstrip()}" for rank, text in enumerate(texts)))
    if (asked.svg or asked.timeline) and asked.ranks > _MOST_RANKS:
        raise ValueError(f"a picture shows up to {_MOST_RANKS} ranks; --rounds prints more")
    if asked.svg:
        _write(asked.svg, _pictures.schedule_svg(what, texts))
    if asked.timeline:
        if len(uses) > _MOST_USES:
            raise ValueError(f"{slices} slices have {len(uses)} messages and sums, more than a picture shows; ask for fewer bytes or ranks")
        hosts = f" on {asked.hosts} hosts" if asked.hosts > 1 else ""
        title = f"{what}{hosts}: {asked.bytes} bytes in {slices} slices; the numbers are rounds"
        _write(asked.timeline, _pictures.timeline_svg(title, asked.ranks, uses))


def _write(path: str, text: str) -> None:
    Path(path).write_text(text, encoding="utf-8")
    print(f"written: {path}")


def _with_index(device: str | None) -> torch.device | None:
    import torch

    if device is None or device == "cpu":
        return None
    wanted = torch.device(device)
    return torch.device(wanted.type, wanted.index or 0)


def _bytes(text: str) -> int:
    """4096, 64K, 1M or 2G, as in settings."""
    number, unit = (text[:-1], text[-1].upper()) if text[-1:].upper() in ("K", "M", "G") else (text, "")
    if not number.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is no size; write 4096, 64K, 1M or 2G")
    return int(number) << {"": 0, "K": 10, "M": 20, "G": 30}[unit]
