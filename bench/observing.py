"""Measures what counters and flight recorder together cost an 8-byte all_reduce.

    python bench/observing.py --ranks 2 --jobs 5

Two jobs take turns on the same cores, a batch of calls each: one with both, one without. TORCH_FR_BUFFER_SIZE=0 turns the recorder off. A process
counts the calls of 128 groups: without counters, 128 groups come before the measured one. A job may have luck with its addresses, so several
pairs of jobs are started one after the other. Printed are the medians of all batches, and of each pair the median of the differences
between batches that follow each other.
"""

import argparse
import os
import statistics
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

import hccl_like

CALLS, COUNTED, WARM = 200, 128, 20


def work(rank: int, ranks: int, watched: bool, path: str, pipe) -> None:
    """A rank: runs a batch for each word that comes, and sends back the microseconds of a call."""
    if ranks <= os.cpu_count():
        os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[rank]})
    torch.set_num_threads(1)
    os.environ["TORCH_FR_BUFFER_SIZE"] = "2000" if watched else "0"
    dist.init_process_group("hccl-like", init_method=f"file://{path}", rank=rank, world_size=ranks)
    tensor = torch.zeros(2)
    for _ in range(0 if watched else COUNTED):
        dist.all_reduce(tensor, group=dist.new_group())
    pipe.send(0.0)
    while pipe.recv():
        for _ in range(WARM):
            dist.all_reduce(tensor)
        begin = time.perf_counter()
        for _ in range(CALLS):
            dist.all_reduce(tensor)
        pipe.send((time.perf_counter() - begin) / CALLS * 1e6)
    assert bool(hccl_like.dump_flight_recorder()["entries"]) == watched
    dist.destroy_process_group()


class Job:
    """The ranks of a job, which wait for their turn."""

    def __init__(self, ranks: int, watched: bool, folder: str):
        context = mp.get_context("spawn")
        self.pipes, self.processes = [], []
        for rank in range(ranks):
            ours, theirs = context.Pipe()
            self.pipes.append(ours)
            self.processes.append(context.Process(target=work, args=(rank, ranks, watched, f"{folder}/store", theirs)))
            self.processes[-1].start()
        for pipe in self.pipes:
            pipe.recv()

    def batch(self) -> float:
        for pipe in self.pipes:
            pipe.send(True)
        return [pipe.recv() for pipe in self.pipes][0]

    def end(self) -> None:
        for pipe in self.pipes:
            pipe.send(False)
        for process in self.processes:
            process.join()
            if process.exitcode != 0:
                raise RuntimeError(f"a rank ended with {process.exitcode}")


def pair(ranks: int, batches: int) -> dict[bool, list[float]]:
    """Microseconds of a call in each batch, watched and not."""
    us = {True: [], False: []}
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        jobs = {True: Job(ranks, True, one), False: Job(ranks, False, other)}
        for turn in range(batches + 5):
            for watched in (turn % 2 == 0, turn % 2 != 0):
                us[watched].append(jobs[watched].batch())
        for job in jobs.values():
            job.end()
    return {watched: times[5:] for watched, times in us.items()}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--jobs", type=int, default=5, help="pairs of jobs, one after the other")
    parser.add_argument("--batches", type=int, default=1000, help="of each job")
    args = parser.parse_args()
    pairs = [pair(args.ranks, args.batches) for _ in range(args.jobs)]
    costs = [statistics.median(100 * (on / off - 1) for on, off in zip(us[True], us[False])) for us in pairs]
    without, with_both = (statistics.median(t for us in pairs for t in us[watched]) for watched in (False, True))
    print(f"{args.ranks} ranks: {without:.2f} us without, {with_both:.2f} us with; {statistics.median(costs):+.1f} % "
          f"(by pair of jobs: {', '.join(f'{cost:+.1f}' for cost in sorted(costs))})")
