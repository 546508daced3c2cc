"""What must hold against the others, and whether it does. Pure: works on the rows of a result file."""

import math
from dataclasses import dataclass

MPI = ("MPICH", "Open MPI", "Intel MPI")
RAW = "raw TCP"
PEERS = (*MPI, "MPICH (UCX)", "oneCCL", "UCC", "gloo")
REDUCING = ("all_reduce", "reduce_scatter")
TRANSFERS = ("all_gather", "alltoall", "broadcast", "sendrecv")
KIB, MIB = 1 << 10, 1 << 20


@dataclass
class Verdict:
    requirement: str
    value: float
    limit: float
    at_least: bool = True  # else at most

    @property
    def holds(self) -> bool:
        return self.value >= self.limit if self.at_least else self.value <= self.limit


def geometric_mean(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


def best(row: dict, names: tuple[str, ...] = PEERS) -> float | None:
    """The least time that one of them took."""
    times = [row["times"][name] for name in names if name in row["times"]]
    return min(times) if times else None


def gains(rows: list[dict], ours: str, names: tuple[str, ...] = PEERS) -> list[float]:
    """How many times faster ours is than the best of them, row by row where both were measured."""
    return [best(row, names) / row["times"][ours] for row in rows if ours in row["times"] and best(row, names)]


def select(rows: list[dict], collectives, least: int, most: int, ranks: int = 2) -> list[dict]:
    return [row for row in rows
            if row["ranks"] == ranks and row["collective"] in collectives and least <= row["size"] <= most]


def verdicts(rows: list[dict]) -> list[Verdict]:
    """Of every requirement that the rows can tell about."""
    found = between_hosts([row for row in rows if row.get("hosts")])
    rows = [row for row in rows if not row.get("hosts")]
    found += latency(rows)
    found += bandwidth(rows, "mapped", {**dict.fromkeys(REDUCING, 2.0), **dict.fromkeys(TRANSFERS, 1.2)}, 0.8)
    found += bandwidth(rows, "ordinary", dict.fromkeys((*REDUCING, *TRANSFERS), 1.0), 0.8)
    return found + floors(rows) + through_torch(rows) + crowds(rows)


def latency(rows: list[dict]) -> list[Verdict]:
    found = []
    for collective, size in (("all_reduce", 8), ("barrier", 0)):
        gained = gains([row for row in select(rows, (collective,), size, size) if row["type"] == "float"], "ordinary",
                       (*MPI, "UCC"))
        if gained:
            label = f"{collective}{', 8 B' if size else ''}: within 1.3 times the fastest MPI"
            found.append(Verdict(label, min(gained), 1 / 1.3))
    return found


def bandwidth(rows: list[dict], ours: str, limits: dict[str, float], nowhere_below: float) -> list[Verdict]:
    found, all_gains = [], []
    for collective, limit in limits.items():
        gained = gains(select(rows, (collective,), 64 * KIB, 64 * MIB), ours)
        if gained:
            found.append(Verdict(f"{ours}, {collective}, 64 KiB to 64 MiB: geometric mean over the best peer",
                                 geometric_mean(gained), limit))
        all_gains += gained
    if all_gains:
        found.append(Verdict(f"{ours}, 64 KiB to 64 MiB: the worst row over the best peer", min(all_gains), nowhere_below))
    return found


def floors(rows: list[dict]) -> list[Verdict]:
    return [Verdict(f"mapped, {row['collective']} {row['type']}, {row['size'] // MIB} MiB: part of the memory's floor",
                    row["floor"] / row["times"]["mapped"], 0.7)
            for row in select(rows, (*REDUCING, *TRANSFERS), 16 * MIB, 64 * MIB)
            if row.get("floor") and "mapped" in row["times"]]


def through_torch(rows: list[dict]) -> list[Verdict]:
    found = []
    for row in select(rows, ("all_reduce",), 8, 16 * MIB):
        ours, gloo, fake = (row["times"].get(name) for name in ("hccl-like in torch", "gloo", "fake in torch"))
        if row["type"] != "float" or ours is None:
            continue
        if row["size"] == 8 and fake:
            found.append(Verdict("through torch, all_reduce, 8 B: time over 1.5 x fake + 1 us", ours / (1.5 * fake + 1), 1.0,
                                 at_least=False))
        for size, label, limit in ((8, "8 B", 15.0), (16 * MIB, "16 MiB", 6.0)):
            if row["size"] == size and gloo:
                found.append(Verdict(f"through torch, all_reduce, {label}: over gloo", gloo / ours, limit))
    return found


def crowds(rows: list[dict]) -> list[Verdict]:
    """More ranks than cores, all_reduce."""
    found = []
    for ranks in (4, 8):
        for ours, small, large, slower, ahead in (("mapped", 50, 2.5, 1.2, 64 * KIB), ("ordinary", 20, 2.0, 1.3, MIB)):
            for least, most, limit, label in ((8, MIB, small, "up to 1 MiB"), (MIB + 1, 1 << 40, large, "above 1 MiB")):
                gained = gains(select(rows, ("all_reduce",), least, most, ranks), ours, ("gloo",))
                if gained:
                    found.append(Verdict(f"{ranks} ranks, {ours}, {label}: over gloo, worst row", min(gained), limit))
            settled = ("Open MPI", "Intel MPI")
            for least, most, limit, label in ((8, KIB, 1 / slower, f"8 B to 1 KiB: within {slower} x of MPI"),
                                              (ahead, 1 << 40, 1.0, f"from {ahead // KIB} KiB: ahead of MPI")):
                gained = gains(select(rows, ("all_reduce",), least, most, ranks), ours, settled)
                if gained:
                    found.append(Verdict(f"{ranks} ranks, {ours}, {label}, worst row", min(gained), limit))
    return found


def between_hosts(rows: list[dict]) -> list[Verdict]:
    """A rank a host, all_reduce."""
    found = []
    for hosts in sorted({row["hosts"] for row in rows}):
        mine = [row for row in select(rows, ("all_reduce",), 8, 1 << 40, hosts) if "ordinary" in row["times"]]
        label = f"{hosts} hosts, all_reduce"
        for size, name, limit in ((8, "8 B", 50.0), (16 * MIB, "16 MiB", 1.8), (64 * MIB, "64 MiB", 1.8)):
            gained = gains(select(mine, ("all_reduce",), size, size, hosts), "ordinary", ("gloo",))
            found += [Verdict(f"{label}, {name}: over gloo", gained[0], limit)] if gained else []
        gained = gains(mine, "ordinary", tuple(name for name in PEERS if name != "gloo"))
        if gained:
            found.append(Verdict(f"{label}: the worst row over the best of the others", min(gained), 1.0))
            found.append(Verdict(f"{label}: geometric mean over the best of the others", geometric_mean(gained), 1.2))
        for row in mine:
            if RAW not in row["times"]:
                continue
            share = row["times"][RAW] / row["times"]["ordinary"]
            if row["size"] == 8:
                found.append(Verdict(f"{label}, 8 B: time over raw TCP's for the same rounds", 1 / share, 1.3, at_least=False))
            elif row["size"] >= MIB:
                found.append(Verdict(f"{label}, {row['size'] // MIB} MiB: part of raw TCP's speed", share, 0.9))
    return found
