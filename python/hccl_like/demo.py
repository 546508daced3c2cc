"""``hccl-like demo``: a first all_reduce between processes of this machine, without a script and without torchrun."""

from __future__ import annotations

import argparse
import importlib.util
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time

_LISTENER = "HCCL_LIKE_DEMO_LISTENER"  # the descriptor of the store's socket, which rank 0 inherits
_LIMIT = 60.0  # seconds after which something must be wrong
_SIZES = (8, 1 << 10, 64 << 10, 1 << 20, 16 << 20)
_NEXT = (
    ("see what is installed", "hccl-like info"),
    ("compare with gloo", "python bench/all_reduce_perf.py --compare gloo"),
    ("train a model", "torchrun --nproc-per-node=2 examples/train_digits.py --parallel ddp"),
)


def main(argv: list[str] | None = None) -> int:
    """Runs the demo; returns the exit code."""
    parser = argparse.ArgumentParser(prog="hccl-like demo", description=__doc__.split(": ", 1)[1])
    parser.add_argument("-n", "--nproc", type=int, default=2, help="ranks to start (2)")
    parser.add_argument("--device", choices=("auto", "sim", "cpu"), default="auto",
                        help="where the tensors lie (auto: sim if torch_sim is installed, else cpu)")
    args = parser.parse_args(argv)
    if not 1 <= args.nproc <= 64:
        parser.error("-n takes 1 to 64 ranks")
    missing = _missing(args.device)
    if missing:
        print(missing, file=sys.stderr)
        return 1
    device = args.device
    if device == "auto":
        device = "sim" if importlib.util.find_spec("torch_sim") else "cpu"
    print(f"starting {args.nproc} ranks on this machine, tensors on {device} ...", flush=True)
    return _spawn(args.nproc, device)


def _missing(device: str) -> str | None:
    """What must be installed first. Asked without importing torch, which takes seconds."""
    if importlib.util.find_spec("torch") is None:
        return "torch is not installed: pip install 'torch>=2.13,<2.14'"
    if importlib.util.find_spec("hccl_like._C") is None:
        return "the extension of hccl-like is not built: pip install --no-build-isolation . in its source folder"
    if device == "sim" and importlib.util.find_spec("torch_sim") is None:
        return ("the simulated accelerator is not installed: pip install --no-build-isolation ./simulator, or take "
                "--device cpu")
    return None


def _spawn(ranks: int, device: str) -> int:
    """One process per rank. The store's port is never let go: rank 0 inherits the socket that listens on it."""
    with socket.create_server(("127.0.0.1", 0), backlog=ranks) as listener, tempfile.TemporaryDirectory() as folder:
        shared = {"WORLD_SIZE": ranks, "MASTER_PORT": listener.getsockname()[1], _LISTENER: listener.fileno(),
                  "OMP_NUM_THREADS": 1}
        children = []
        for rank in range(ranks):
            variables = {name: str(value) for name, value in {**shared, "RANK": rank}.items()}
            with open(f"{folder}/{rank}", "wb") as errors:
                children.append(subprocess.Popen(
                    [sys.executable, "-m", "hccl_like.demo", device], env={**os.environ, **variables}, stderr=errors,
                    pass_fds=[listener.fileno()]))
        try:
            failed = _first_failure(children)
        finally:
            for child in children:
                child.kill()
                child.wait()
        if failed is None:
            return 0
        rank, why = failed
        with open(f"{folder}/{rank}", errors="replace") as told:
            sys.stderr.write(told.read())
        print(f"the demo failed: rank {rank} {why}. `hccl-like info` shows what is installed.", file=sys.stderr)
        return 1


def _first_failure(children: list[subprocess.Popen]) -> tuple[int, str] | None:
    """Waits for all; (rank, what happened) of the first that did not end well."""
    deadline = time.monotonic() + _LIMIT
    running = dict(enumerate(children))
    while running:
        for rank, child in list(running.items()):
            code = child.poll()
            if code is None:
                continue
            if code != 0:
                return rank, f"ended with code {code}" if code > 0 else f"was killed by signal {-code}"
            del running[rank]
        if time.monotonic() > deadline:
            return next(iter(running)), f"was not done after {_LIMIT:.0f} seconds"
        time.sleep(0.02)
    return None


def _rank(kind: str) -> None:
    """What every rank does."""
    import torch
    import torch.distributed as dist

    begin = time.perf_counter()
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)
    device = _device(kind, rank)
    listener = int(os.environ[_LISTENER])
    if rank:
        os.close(listener)
    store = dist.TCPStore("127.0.0.1", int(os.environ["MASTER_PORT"]), ranks, is_master=rank == 0,
                          master_listen_fd=None if rank else listener)
    dist.init_process_group("hccl-like", store=store, rank=rank, world_size=ranks)

    def say(text: str = "") -> None:
        if rank == 0:
            print(text, flush=True)

    mine = torch.full((4,), rank + 1.0, device=device)
    dist.all_reduce(mine)
    ready = time.perf_counter() - begin
    total = ranks * (ranks + 1) / 2
    if mine.tolist() != [total] * 4:
        raise SystemExit(f"rank {rank} got {mine.tolist()} instead of {[total] * 4}")
    say(f"all_reduce: rank r gives [r+1, ...], everybody gets {mine.tolist()}: right. "
        f"First result {1000 * ready:.0f} ms after import torch.")
    say(f"backend {dist.get_backend()}, torch {torch.__version__}, device {device.type}{_path(device)}")
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

    if kind == "cpu":
        return torch.device("cpu")
    module = getattr(torch, kind, None)
    if module is None or not module.is_available():
        raise SystemExit(f"torch knows no device '{kind}' although torch_sim is installed: another accelerator may "
                         "have been loaded first. Try --device cpu.")
    device = torch.device(kind, rank % module.device_count())
    torch.accelerator.set_device_index(device.index)
    return device


def _path(device) -> str:
    """How the peers are reached, if the backend tells."""
    import torch.distributed as dist

    try:
        links = dist.group.WORLD._get_backend(device)._info()["links"]
    except (AttributeError, KeyError, RuntimeError):
        return ""
    return "".join(f", {way}" for way in sorted({str(link) for link in links if link}))


def _median(torch, dist, size: int, device) -> float:
    """Microseconds of an all_reduce of float32."""
    tensor = torch.zeros(size // 4, device=device)
    times = []
    for iteration in range(25):
        begin = time.perf_counter()
        dist.all_reduce(tensor)
        if device.type != "cpu":
            torch.accelerator.synchronize()
        if iteration >= 5:  # the first ones warm up
            times.append(time.perf_counter() - begin)
    return 1e6 * statistics.median(times)


def _readable(size: int) -> str:
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size // unit} {name}"
    return f"{size} B"


if __name__ == "__main__":
    _rank(sys.argv[1])
