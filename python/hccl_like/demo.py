"""``hccl-like demo``: a first all_reduce between processes of this machine, without a script and without torchrun."""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import os
import statistics
import sys
import time

from hccl_like import _adapters, _imports, _local_ranks

_LIMIT = 60.0  # seconds after which something must be wrong
_SIZES = (8, 1 << 10, 64 << 10, 1 << 20, 16 << 20)
_NEXT = (
    ("see what is installed", "hccl-like info"),
    ("compare with gloo", "hccl-like bench all_reduce --compare gloo"),
    ("train a model", "torchrun --nproc-per-node=2 examples/train_digits.py --parallel ddp"),
)


def main(argv: list[str] | None = None) -> int:
    """Runs the demo; returns the exit code."""
    parser = argparse.ArgumentParser(prog="hccl-like demo", description=__doc__.split(": ", 1)[1])
    parser.add_argument("-n", "--nproc", type=int, default=2, help="ranks to start (2)")
    parser.add_argument("--device", metavar="D", default="auto",
                        help="where the tensors lie: cpu, or a device by torch's name (auto: the PrivateUse1 device, else cpu)")
    _imports.add_option(parser)
    args = parser.parse_args(argv)
    _imports.apply(args)
    if not 1 <= args.nproc <= 64:
        parser.error("-n takes 1 to 64 ranks")
    missing = _missing(args.device)
    if missing:
        print(missing, file=sys.stderr)
        return 1
    try:
        _compile_adapter()
    except ImportError as error:
        print(error, file=sys.stderr)
        return 1
    where = "" if args.device == "auto" else f", tensors on {args.device}"
    print(f"starting {args.nproc} ranks on this machine{where} ...", flush=True)
    return _spawn(args.nproc, args.device)


def _missing(device: str) -> str | None:
    """What must be installed first. Asked without importing torch, which takes seconds."""
    if importlib.util.find_spec("torch") is None:
        return "torch is not installed: pip install 'torch>=2.11'"
    if not _adapters.is_built():
        return "the extension of hccl-like is not built: pip install --no-build-isolation . in its source folder"
    if device == "sim" and importlib.util.find_spec("torch_sim") is None:
        return ("the simulated accelerator is not installed: pip install --no-build-isolation ./simulator, or take "
                "--device cpu")
    return None


def _compile_adapter() -> None:
    """Compiles the adapter where the package has none, before the limit of the ranks begins. Imports torch only then."""
    try:
        minor = _adapters.minor_version(importlib.metadata.version("torch"))
    except importlib.metadata.PackageNotFoundError:
        minor = None
    if minor not in _adapters.built_for():
        _adapters.find()


def _spawn(ranks: int, device: str) -> int:
    failed = _local_ranks.run("hccl_like.demo", [device], ranks, _LIMIT)
    if failed is None:
        return 0
    sys.stderr.write(failed.told)
    print(f"the demo failed: rank {failed.rank} {failed.why}. `hccl-like doctor` tells more.", file=sys.stderr)
    return 1


def _rank(kind: str) -> None:
    """What every rank does."""
    import torch
    import torch.distributed as dist

    begin = time.perf_counter()
    device = _device(kind, int(os.environ["RANK"]))
    rank, ranks = _local_ranks.join()

    def say(text: str = "") -> None:
        if rank == 0:
            try:
                print(text, flush=True)
            except BrokenPipeError:
                _local_ranks.silence()

    mine = torch.full((4,), rank + 1.0, device=device)
    dist.all_reduce(mine)
    ready = time.perf_counter() - begin
    total = ranks * (ranks + 1) / 2
    if mine.tolist() != [total] * 4:
        raise SystemExit(f"rank {rank} got {mine.tolist()} instead of {[total] * 4}")
    say(f"all_reduce: rank r gives [r+1, ...], everybody gets {mine.tolist()}: right. "
        f"First result {1000 * ready:.0f} ms after import torch.")
    say(f"backend {dist.get_backend()}, torch {torch.__version__}, device {', '.join([device.type, *_local_ranks.paths(device)])}")
    say()
    say(f"{'size':>8}  {'median us':>10}  {'busbw GB/s':>10}")
    for size in _SIZES:
        microseconds = _median(torch, dist, size, device)
        busbw = 2 * (ranks - 1) / ranks * size / microseconds / 1000
        say(f"{_readable(size):>8}  {microseconds:>10.1f}  {busbw:>10.2f}")
    dist.destroy_process_group()
    say()
    say("it works. Next:")
    for what, command in _NEXT:
        say(f"  {command:<{max(len(c) for _, c in _NEXT)}}  # {what}")


def _device(kind: str, rank: int):
    import torch

    from hccl_like import _accelerator

    found = _accelerator.named() if _accelerator.is_available() else None
    if kind == "auto":
        kind = found if found is not None and found == torch._C._get_privateuse1_backend_name() else "cpu"
    if kind == "cpu":
        return torch.device("cpu")
    if kind != found:
        raise SystemExit(f"torch knows no device '{kind}' here, {f'but {found!r}' if found else 'nor any other'}. "
                         f"Try --device {found or 'cpu'}.")
    device = torch.device(kind, rank % _accelerator.device_count(kind))
    torch.accelerator.set_device_index(device.index)
    return device


def _median(torch, dist, size: int, device) -> float:
    """Microseconds of an all_reduce of float32."""
    tensor = torch.zeros(size // 4, device=device)
    times = []
    for iteration in range(25):
        begin = time.perf_counter()
        dist.all_reduce(tensor)
        if device.type != "cpu":
            _settle(torch, tensor)
        if iteration >= 5:  # the first ones warm up
            times.append(time.perf_counter() - begin)
    return 1e6 * statistics.median(times)


def _settle(torch, tensor) -> None:
    try:
        torch.accelerator.synchronize()
    except RuntimeError:  # a device that cannot be waited for; reading waits for it
        tensor[:1].cpu()


def _readable(size: int) -> str:
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size // unit} {name}"
    return f"{size} B"


if __name__ == "__main__":
    _rank(sys.argv[1])
