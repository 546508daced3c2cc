"""Flight-recorder dumps as ranks would have written them, made by hand."""

import pickle

SECOND = 1_000_000_000
START = 1_700_000_000 * SECOND


def call(number, name="all_reduce", at=0.0, took=0.001, *, group="0", description="default_pg", state="completed", failed=False,
         sizes=((3,),), kind="Float", message=False, frames=(), late=0.0):  # fmt: skip
    """One record. `at` and `took` in seconds; `late`: from the call until it has begun."""
    begin = START + round(at * SECOND)
    return {
        "profiling_name": f"hccl:{name}", "process_group": (group, description), "is_p2p": message,
        "collective_seq_id": 0 if message else number, "p2p_seq_id": 1_000_000_000 + (number if message else 0),
        "state": state, "retired": failed or state == "completed", "time_created_ns": begin,
        "time_discovered_started_ns": begin + round(late * SECOND),
        "time_discovered_completed_ns": begin + round(took * SECOND) if state == "completed" else None,
        "input_sizes": [list(size) for size in sizes], "input_dtypes": [kind] * len(sizes),
        "output_sizes": [list(size) for size in sizes], "output_dtypes": [kind] * len(sizes),
        "frames": [{"name": name, "filename": file, "line": line} for name, file, line in frames],
    }  # fmt: skip


def write(folder, rank, entries, groups=None, first=1):
    """Writes trace_RANK; `groups`: name to (description, ranks)."""
    groups = groups or {"0": ("default_pg", [0, 1, 2])}
    config = {name: {"name": name, "desc": description, "ranks": str(ranks)} for name, (description, ranks) in groups.items()}
    for number, entry in enumerate(entries, start=first):
        entry["record_id"] = number
    path = folder / f"trace_{rank}"
    path.write_bytes(pickle.dumps({"version": "2.10", "pg_config": config, "pg_status": {}, "entries": entries}, protocol=2))
    return path
