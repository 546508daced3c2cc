"""``hccl-like verify``: reductions on every path that a machine has, which must all have the same bits.

Each path is a job of its own with HCCL_LIKE_DETERMINISTIC=1 and settings that send calls that way. Rank 0 hashes what all ranks got.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys

from hccl_like import _imports, _local_ranks

_LIMIT = 300.0  # seconds for one path
_MESSAGES = {"HCCL_LIKE_BOARD": "0"}
# By name: settings that send every call, or every large call, that way.
PATHS = {
    "default": {},
    "large calls by messages": {"HCCL_LIKE_DIRECT": "0"},
    "messages": _MESSAGES,
    "messages, one_shot": _MESSAGES | {"HCCL_LIKE_ALGO": "all_reduce:one_shot"},
    "messages, direct": _MESSAGES | {"HCCL_LIKE_ALGO": "all_reduce:direct;reduce:direct;reduce_scatter:direct"},
    "messages, small slices": _MESSAGES | {"HCCL_LIKE_SLICE_BYTES": "4K"},
    "tcp": {"HCCL_LIKE_TRANSPORTS": "tcp"},
    "tcp, small slices": {"HCCL_LIKE_TRANSPORTS": "tcp", "HCCL_LIKE_SLICE_BYTES": "16K", "HCCL_LIKE_EAGER_BYTES": "1K"},
}
# Elements: about the limits of the board, of whole cache lines and of slices.
SIZES = (1, 7, 33, 1000, 4096, 16_411, 100_003, 300_000)
TYPES = ("float32", "bfloat16", "float16", "float8_e4m3fn", "float8_e5m2", "float64")


def main(argv: list[str] | None = None) -> int:
    """Returns 0 if all paths agree, 1 if some do not, 2 if a path could not be tried."""
    parser = argparse.ArgumentParser(
        prog="hccl-like verify",
        description="Makes the same reductions with HCCL_LIKE_DETERMINISTIC=1 over the board, in each other's memory, "
        "by messages of each algorithm and over TCP, and compares the bits of the results. Without it, with --default, the last bits of "
        "sums may differ: that shows what determinism changes.",
        epilog="example: hccl-like verify -n 3 --device sim")
    parser.add_argument("-n", "--nproc", type=int, default=3, help="ranks to start (3)")
    parser.add_argument("--device", default="cpu", metavar="D", help="where the tensors lie: cpu, or a device by torch's name (cpu)")
    parser.add_argument("--default", action="store_true", help="without HCCL_LIKE_DETERMINISTIC")
    parser.add_argument("--json", action="store_true", help="one JSON object: hashes by path")
    _imports.add_option(parser)
    args = parser.parse_args(argv)
    _imports.apply(args)
    if not 2 <= args.nproc <= 64:
        parser.error("-n takes 2 to 64 ranks")
    hashes = {}
    for path, settings in PATHS.items():
        result = _run(args, settings)
        if isinstance(result, _local_ranks.Failure):
            print(f"{result.told}the path '{path}' was not tried: rank {result.rank} {result.why}", file=sys.stderr)
            return 2
        hashes[path] = result
        if not args.json:
            print(f"{path:24} {digest(result)}", flush=True)
    different = differences(hashes)
    if args.json:
        print(json.dumps({"hashes": {path: digest(one) for path, one in hashes.items()}, "different": different}))
    else:
        print(verdict(hashes, different))
    return 1 if different else 0


def _run(args: argparse.Namespace, settings: dict[str, str]) -> dict[str, str] | _local_ranks.Failure:
    output = _local_ranks.Output()
    names = {*settings, "HCCL_LIKE_DETERMINISTIC", "HCCL_LIKE_ALGO", "HCCL_LIKE_PROFILE"}
    before = {name: os.environ.get(name) for name in names}
    try:
        for name in names:
            os.environ.pop(name, None)
        os.environ.update(settings)
        if not args.default:
            os.environ["HCCL_LIKE_DETERMINISTIC"] = "1"
        failure = _local_ranks.run("hccl_like.verify", [args.device], args.nproc, _LIMIT, output)
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
    return failure or json.loads(output.text)


def digest(hashes: dict[str, str]) -> str:
    """One hash of all calls."""
    return hashlib.sha256(json.dumps(hashes, sort_keys=True).encode()).hexdigest()[:16]


def differences(hashes: dict[str, dict[str, str]]) -> dict[str, list[str]]:
    """By call, the paths whose result is not the first path's."""
    first = next(iter(hashes.values()))
    found = {call: [path for path, one in hashes.items() if one[call] != first[call]] for call in first}
    return {call: paths for call, paths in found.items() if paths}


def verdict(hashes: dict[str, dict[str, str]], different: dict[str, list[str]]) -> str:
    """The last line."""
    first = next(iter(hashes))
    calls = len(hashes[first])
    if not different:
        return f"one hash: {calls} calls have the same bits on all {len(hashes)} paths"
    call, paths = next(iter(different.items()))
    return f"{len(different)} of {calls} calls differ; {call} has other bits than on '{first}' on: {', '.join(paths)}"


def reduced(rank: int, ranks: int, device, types=TYPES, sizes=SIZES) -> dict[str, str]:
    """Makes the calls; by call, the hash of what all ranks got. Equal on all ranks."""
    import warnings

    import torch
    import torch.distributed as dist

    warnings.filterwarnings("ignore", category=FutureWarning, module="torch.distributed")

    def bits(tensor) -> bytes:
        return tensor.cpu().contiguous().view(torch.uint8).numpy().tobytes()

    hashes = {}
    factor = dist._make_nccl_premul_sum(1 / 3)
    operations = {"sum": dist.ReduceOp.SUM, "avg": dist.ReduceOp.AVG, "premul_sum": factor, "product": dist.ReduceOp.PRODUCT}
    for name in types:
        dtype = getattr(torch, name)
        for count in sizes:
            random = torch.Generator().manual_seed(1000 * count + rank)
            given = torch.randn(count * ranks, generator=random).to(dtype)
            for operation, op in operations.items():
                if operation == "premul_sum" and dtype.itemsize == 1:
                    continue  # PyTorch's group takes none
                mine = given[:count].to(device, copy=True)
                results = {"all_reduce": mine}
                dist.all_reduce(mine, op)
                results["reduce"] = given[:count].to(device, copy=True)
                dist.reduce(results["reduce"], ranks - 1, op)
                if rank != ranks - 1:
                    results["reduce"] = results["reduce"][:0]
                results["reduce_scatter"] = torch.empty(count, dtype=dtype, device=device)
                dist.reduce_scatter_tensor(results["reduce_scatter"], given.to(device), op)
                own = {call: hashlib.sha256(bits(result)).hexdigest() for call, result in results.items()}
                everybody: list = [None] * ranks
                dist.all_gather_object(everybody, own)
                for call in results:
                    together = hashlib.sha256("".join(one[call] for one in everybody).encode()).hexdigest()
                    hashes[f"{call} of {count} {name}, {operation}"] = together
                if len({one["all_reduce"] for one in everybody}) > 1:
                    raise SystemExit(f"all_reduce of {count} {name}, {operation}, has not the same bits on all ranks")
    return hashes


def _rank(device: str) -> None:
    import torch.distributed as dist

    from hccl_like import demo

    place = demo._device(device, int(os.environ["RANK"]))
    rank, ranks = _local_ranks.join()
    hashes = reduced(rank, ranks, place)
    if rank == 0:
        print(json.dumps(hashes), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    _rank(sys.argv[1])
