#!/usr/bin/env python3
"""A training job that goes from 2 to 4 to 3 ranks without a restart, and has the loss curve of a single process.

    python examples/elastic/train.py

Each rank takes its part of the step's batch, so the number of ranks changes nothing but rounding. After every change all ranks take the
weights, the optimizer's state and the losses of a rank that has made most steps.
"""

import argparse
import os
import signal
import time
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing

import hccl_like

BATCH = 24  # divisible by 2, 3 and 4


def make_model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))


def batch(step):
    generator = torch.Generator().manual_seed(step)
    inputs = torch.randn(BATCH, 8, generator=generator)
    return inputs, inputs.prod(dim=1, keepdim=True).sin()


class Training:
    def __init__(self):
        self.model = make_model()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-3)
        self.losses = []

    def step(self, rank=0, ranks=1):
        inputs, targets = (part.chunk(ranks)[rank] for part in batch(len(self.losses)))
        loss = (self.model(inputs) - targets).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        told = [loss.detach().clone().reshape(1), *(weight.grad for weight in self.model.parameters())]
        if ranks > 1:
            for tensor in told:
                dist.all_reduce(tensor, op=dist.ReduceOp.AVG)
        self.optimizer.step()
        self.losses.append(told[0].item())

    def share(self):
        """Brings all ranks to the state of the one that has made most steps."""
        steps = [None] * dist.get_world_size()
        dist.all_gather_object(steps, len(self.losses))
        state = [None]
        source = steps.index(max(steps))
        if dist.get_rank() == source:
            state = [(self.model.state_dict(), self.optimizer.state_dict(), self.losses)]
        dist.broadcast_object_list(state, source)
        weights, optimizer, self.losses = state[0]
        self.model.load_state_dict(weights)
        self.optimizer.load_state_dict(optimizer)


def run(number, founders, port, steps, pause, results):
    torch.set_num_threads(1)
    store = dist.TCPStore("127.0.0.1", port, is_master=False, wait_for_workers=False)
    training = Training()
    if number < founders:
        dist.init_process_group("hccl-like", store=store, rank=number, world_size=founders, timeout=timedelta(seconds=60))
    else:
        hccl_like.join(store)
        training.share()
    while len(training.losses) < steps:
        try:
            training.step(dist.get_rank(), dist.get_world_size())
            store.set(f"at/{number}", str(len(training.losses)))
            # So that every run is alike, two ranks wait here for the others; a real job takes in who is there.
            expected = dist.get_world_size() < 4 and len(training.losses) == steps // 4
            if hccl_like.grow(wait=50 if expected else 0):
                training.share()  # as the new ranks do after join()
        except dist.DistBackendError as error:
            hccl_like.replace(error, timeout=0)
            training.share()
        time.sleep(pause)
    if dist.get_rank() == 0:
        results.put((dist.get_world_size(), training.losses))
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--pause", type=float, default=0.02, help="seconds between steps, so that there is something to see (0.02)")
    options = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    results = context.SimpleQueue()
    ranks = []

    def start():
        arguments = (len(ranks), 2, store.port, options.steps, options.pause, results)
        ranks.append(context.Process(target=run, args=arguments))
        ranks[-1].start()

    def until(step):
        store.wait(["at/0"], timedelta(minutes=2))
        while int(store.get("at/0")) < step and ranks[0].is_alive():
            time.sleep(0.005)

    start(), start()
    until(options.steps // 4)
    print(f"step {options.steps // 4}: two more processes start", flush=True)
    start(), start()
    store.wait(["at/2", "at/3"], timedelta(minutes=2))
    print("both are in", flush=True)
    until(options.steps * 3 // 4)
    print(f"step {options.steps * 3 // 4}: rank 2 is killed", flush=True)
    os.kill(ranks[2].pid, signal.SIGKILL)
    size, losses = results.get()
    codes = []
    for rank in ranks:
        rank.join()
        codes.append(rank.exitcode)

    alone = Training()
    for _ in range(options.steps):
        alone.step()
    difference = max(abs(one - other) for one, other in zip(losses, alone.losses))
    print(f"{size} ranks at the end, exit codes {codes}")
    print(f"loss {losses[0]:.4f} at first, {losses[-1]:.4f} after {len(losses)} steps; furthest from a single process: {difference:.1e}")
    if len(losses) != options.steps or difference > 1e-5 or size != 3 or codes != [0, 0, -signal.SIGKILL, 0]:
        raise SystemExit("that is not what it should be")


if __name__ == "__main__":
    main()
