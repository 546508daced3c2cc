#!/usr/bin/env python3
"""Replicas train with torchft. One of them is killed, comes back, and the losses are those of a single process.

    python examples/torchft/train.py
    python examples/torchft/train.py --device sim

torchft's Manager says which replicas take part in a step. hccl-like carries the gradients, and the state for the replica that comes back:
torchft's PGTransport sends weights, the optimizer's state and the losses over the same process group, from memory to memory.
Each replica takes its part of the step's batch, so the number of replicas changes nothing but rounding.
"""

import argparse
import logging
import multiprocessing
import os
import queue
import signal
import time
import warnings
from datetime import timedelta

os.environ.setdefault("RUST_LOG", "warn")  # torchft's servers would else tell of every step
os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # DDP would warn of find_unused_parameters, which torchft sets

import torch
import torch.distributed as dist
from process_group import ProcessGroupHcclLike
from torchft.checkpointing.pg_transport import PGTransport
from torchft.coordination import LighthouseServer
from torchft.ddp import DistributedDataParallel
from torchft.manager import Manager

BATCH = 24  # divisible by 1, 2 and 3
PATIENCE = timedelta(seconds=120)


def batch(step):
    generator = torch.Generator().manual_seed(step)
    inputs = torch.randn(BATCH, 8, generator=generator)
    return inputs, inputs.prod(dim=1, keepdim=True).sin()


class Training:
    def __init__(self, device):
        self.device = torch.device(device)
        torch.manual_seed(0)
        self.model = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1)).to(self.device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-3)
        self.losses = []
        self.replicas = []  # that took part in each step

    def state(self):
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(), "losses": self.losses, "replicas": self.replicas}

    def load(self, state):
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.losses, self.replicas = state["losses"], state["replicas"]

    def gradients(self, forward, rank=0, replicas=1):
        """Of this replica's part of the batch. Returns the part's loss."""
        inputs, targets = (part.chunk(replicas)[rank].to(self.device) for part in batch(len(self.losses)))
        self.optimizer.zero_grad()
        loss = (forward(inputs) - targets).square().mean()
        loss.backward()
        return loss.detach()

    def commit(self, loss, replicas=1):
        self.optimizer.step()
        self.losses.append(loss.item())
        self.replicas.append(replicas)


def begin_step(manager, wanted):
    """Asks who takes part, until `wanted` replicas do."""
    deadline = time.monotonic() + PATIENCE.total_seconds()
    while True:
        manager.start_quorum()
        if manager.num_participants() >= wanted:
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"{manager.num_participants()} of {wanted} replicas take part after {PATIENCE}")
        time.sleep(0.01)


def run(number, lighthouse, port, options, results):
    torch.set_num_threads(1)
    logging.disable(logging.ERROR)  # torchft logs each call that fails, with its traceback
    warnings.filterwarnings("ignore", module="torchft")
    board = dist.TCPStore("127.0.0.1", port, is_master=False, wait_for_workers=False)
    own = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)  # the replica has one rank
    training = Training(options.device)
    group = ProcessGroupHcclLike(timeout=PATIENCE)
    manager = Manager(
        pg=group, checkpoint_transport=PGTransport(group, PATIENCE, training.device), load_state_dict=training.load, state_dict=training.state,
        min_replica_size=options.replicas - 1, use_async_quorum=False, replica_id=f"replica{number}", rank=0, world_size=1, init_sync=False,
        store_addr="127.0.0.1", store_port=own.port, lighthouse_addr=lighthouse, hostname="127.0.0.1",
        timeout=PATIENCE, quorum_timeout=PATIENCE,
    )  # fmt: skip
    try:
        forward = DistributedDataParallel(manager, training.model)
        last = time.monotonic()
        while manager.current_step() < options.steps:
            # The replicas wait for each other, so that all runs are alike. A real job takes the replicas that are present.
            begin_step(manager, options.replicas if manager.current_step() in (0, options.steps * 2 // 3) else options.replicas - 1)
            replicas = manager.num_participants()
            loss = training.gradients(forward, manager.participating_rank(), replicas)
            manager.allreduce(loss).wait()
            if manager.should_commit():
                if training.replicas and replicas != training.replicas[-1] and number == 0:
                    print(f"step {manager.current_step()}: replicas that take part: {replicas}; {(time.monotonic() - last) * 1e3:.0f} ms "
                          "since the last step", flush=True)  # fmt: skip
                training.commit(loss, replicas)
                last = time.monotonic()
                board.set(f"at/{number}", str(len(training.losses)))
            time.sleep(options.pause)
        weights = torch.cat([weight.detach().cpu().flatten() for weight in training.model.parameters()])
        results.put((number, training.losses, training.replicas, weights.numpy().tobytes()))
        board.set(f"over/{number}", "")
        board.wait([f"over/{one}" for one in range(options.replicas)], PATIENCE)
    finally:
        manager.shutdown(wait=False)
        group.shutdown()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replicas", type=int, choices=(2, 3), default=3)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--pause", type=float, default=0.01, help="seconds between steps, so that there is something to see (0.01)")
    parser.add_argument("--device", default="cpu", help="cpu, or the name of an accelerator (cpu)")
    options = parser.parse_args()
    # Replicas are forked from a server that has imported everything and has no threads.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torchft.manager", "torchft.ddp", "hccl_like"])
    lighthouse = LighthouseServer(bind="127.0.0.1:0", min_replicas=options.replicas - 1, join_timeout_ms=1000, heartbeat_timeout_ms=1000)
    board = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    results = context.Queue()
    replicas = []

    def start(number):
        replica = context.Process(target=run, args=(number, lighthouse.address(), board.port, options, results))
        replica.start()
        return replica

    def look():
        if any(replica.exitcode not in (None, 0, -signal.SIGKILL) for replica in replicas):
            raise SystemExit("a replica has failed")

    def until(step):
        while not board.check(["at/0"]) or int(board.get("at/0")) < step:
            look()
            time.sleep(0.005)

    try:
        for number in range(options.replicas):
            replicas.append(start(number))
        until(options.steps // 3)
        print(f"step {board.get('at/0').decode()}: replica 1 is killed", flush=True)
        os.kill(replicas[1].pid, signal.SIGKILL)
        until(options.steps // 3 + 5)
        print(f"step {board.get('at/0').decode()}: it starts again", flush=True)
        replicas.append(start(1))
        told = {}
        while len(told) < options.replicas:
            try:
                number, losses, sizes, weights = results.get(timeout=1)
                told[number] = (losses, sizes, weights)
            except queue.Empty:
                look()
        for replica in replicas:
            replica.join(PATIENCE.total_seconds())
        codes = [replica.exitcode for replica in replicas]
    finally:
        for replica in replicas:
            replica.kill()
        lighthouse.shutdown()

    alone = Training("cpu")
    for _ in range(options.steps):
        alone.commit(alone.gradients(alone.model))
    losses, sizes, weights = told[0]
    difference = max(abs(one - other) for one, other in zip(losses, alone.losses, strict=True))
    same = all(other == weights for _, _, other in told.values())
    changes = [f"{size} from step {step}" for step, size in enumerate(sizes) if step == 0 or size != sizes[step - 1]]
    print(f"replicas that took part: {', '.join(changes)}; exit codes {codes}")
    print(f"loss {losses[0]:.4f} at first, {losses[-1]:.4f} after {len(losses)} steps; furthest from a single process: {difference:.1e}")
    print(f"weights are {'equal' if same else 'NOT EQUAL'} on all replicas")
    expected = [-signal.SIGKILL if number == 1 else 0 for number in range(len(replicas))]
    if not same or difference > 1e-5 or sizes[-1] != options.replicas or options.replicas - 1 not in sizes or codes != expected:
        raise SystemExit("that is not what it should be")


if __name__ == "__main__":
    main()
