#!/usr/bin/env python3
"""Sharded training loses a rank, goes on with the replica that is whole, takes a new process in, and has the losses of a single process.

    python examples/elastic/hsdp.py

Two replicas of a model, each sharded over two ranks by ``fully_shard`` (HSDP). When a rank is lost, the ranks of the whole replica go on, each
with more of the batch, and the other ranks of the broken one wait. A new process takes the place of the lost rank. It and those who waited get
their shards of the weights and of the optimizer's state from the ranks of the other replica that hold the same shards: nothing is read from disk.
"""

import argparse
import hashlib
import multiprocessing
import os
import queue
import signal
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

import hccl_like

REPLICAS, SHARDS = 2, 2
BATCH = 24  # divisible by 2 and 4
PATIENCE = 120  # seconds


def batch(step):
    generator = torch.Generator().manual_seed(step)
    inputs = torch.randn(BATCH, 8, generator=generator)
    return inputs, inputs.prod(dim=1, keepdim=True).sin()


def make_model(device):
    torch.manual_seed(0)
    with torch.device(device):
        return torch.nn.Sequential(torch.nn.Linear(8, 65), torch.nn.Tanh(), torch.nn.Linear(65, 33), torch.nn.Tanh(), torch.nn.Linear(33, 1))


def make_optimizer(model):
    """With its state, which would else be made in the first step."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for weight in model.parameters():
        optimizer.state[weight] = {
            "step": torch.zeros(()), "exp_avg": torch.zeros_like(weight), "exp_avg_sq": torch.zeros_like(weight)
        }  # fmt: skip
    return optimizer


def local(tensor):
    return tensor.detach().to_local() if isinstance(tensor, DTensor) else tensor


class Training:
    """One rank. It has a place, its replica and its shard, which stays its own when ranks get other numbers."""

    def __init__(self, device, place=None):
        self.device = torch.device(device)
        self.place = place  # replica * SHARDS + shard; None: this process is new
        self.done = 0 if place is not None else -1  # steps that this rank's shard has made
        self.gradients = self.done  # steps that it can have made: one more if it has the gradients of the next one
        self.losses = []
        self.model = self.optimizer = None
        self.missing = []  # places without a rank
        self.trainers = []  # ranks of the replicas that are whole

    def shard(self):
        """What this rank holds of the weights and the optimizer's state. A forward pass that failed may have left model.parameters() whole."""
        if self.optimizer is None:
            return []
        (group,) = self.optimizer.param_groups
        return [local(tensor) for weight in group["params"] for tensor in (weight, *self.optimizer.state[weight].values())]

    def settle(self):
        """Makes replicas of the ranks there are, and brings them to the same step. A call of all ranks after each change."""
        me = dist.get_rank()
        told = [None] * dist.get_world_size()
        dist.all_gather_object(told, (self.place, self.done, self.gradients))
        newest = max(done for _, done, _ in told)
        if self.done < newest == self.gradients:  # others have made the step: see step()
            self.optimizer.step()
            self.done = newest
        self.gradients = self.done
        current = [newest in (done, gradients) for _, done, gradients in told]

        places = [place for place, _, _ in told]
        self.missing = [place for place in range(REPLICAS * SHARDS) if place not in places]
        places = [self.missing.pop(0) if place is None else place for place in places]
        self.place = places[me]
        whole = [range(first, first + SHARDS) for first in range(0, REPLICAS * SHARDS, SHARDS)]
        mesh = [[places.index(place) for place in replica] for replica in whole if not set(replica) & set(self.missing)]
        self.trainers = sum(mesh, [])

        def source(rank):
            """A rank of another replica that has the shard of `rank`."""
            shard = places[rank] % SHARDS
            for other, place in enumerate(places):
                if current[other] and place % SHARDS == shard:
                    return other
            raise SystemExit(f"shard {shard} is lost in all replicas: begin again with a checkpoint")

        transfers = [(source(rank), rank) for rank in self.trainers if not current[rank]]
        if mesh:
            self.shard_model(mesh, empty=self.model is not None or newest > 0 or not current[me])
        for sender, receiver in transfers:
            if me == receiver:
                self.done = self.gradients = -1  # in case that it gets a part only
            for tensor in self.shard() if me in (sender, receiver) else []:
                dist.send(tensor, receiver) if me == sender else dist.recv(tensor, sender)
        if me in self.trainers:
            self.done = self.gradients = newest
        history = [self.losses]
        dist.broadcast_object_list(history, [done for _, done, _ in told].index(newest))
        self.losses = history[0][:newest]

    def shard_model(self, mesh, empty):
        """Makes model and optimizer anew, with this rank's shard of before. Ranks that do not train keep theirs as it is."""
        mesh = DeviceMesh(self.device.type, mesh, mesh_dim_names=("replica", "shard"))
        if dist.get_rank() not in self.trainers:
            return
        before = self.shard()
        self.model = make_model("meta") if empty else make_model("cpu").to(self.device)
        for layer in [*self.model.children(), self.model]:
            fully_shard(layer, mesh=mesh)
        if empty:
            self.model.to_empty(device=self.device)
        self.optimizer = make_optimizer(self.model)
        for new, old in zip(self.shard(), before):
            new.copy_(old)

    def step(self):
        """A step of the ranks that train. The others hear of its loss."""
        loss = 0.0
        if dist.get_rank() in self.trainers:
            part = self.trainers.index(dist.get_rank())
            inputs, targets = (half.chunk(len(self.trainers))[part].to(self.device) for half in batch(self.done))
            self.optimizer.zero_grad()
            told = (self.model(inputs) - targets).square().mean()
            told.backward()
            if self.device.type != "cpu":
                torch.accelerator.synchronize()  # raises if one of the step's calls failed on the device
            loss = told.item() / len(self.trainers)
            self.gradients = self.done + 1
        # All ranks meet. A rank that gets the sum knows that all ranks have their gradients, and makes the step. A rank that loses a peer here
        # cannot know whether others got the sum: settle() makes the step if any of them did.
        total = torch.tensor([loss])
        dist.all_reduce(total)
        if dist.get_rank() in self.trainers:
            self.optimizer.step()
            self.done += 1
        self.losses.append(total.item())


def run(number, port, options, results):
    torch.set_num_threads(1)
    store = dist.TCPStore("127.0.0.1", port, is_master=False, wait_for_workers=False)
    if options.device != "cpu":
        torch.accelerator.set_device_index(number % torch.accelerator.device_count())
    begin = time.monotonic()
    if number < REPLICAS * SHARDS:
        dist.init_process_group("hccl-like", store=store, rank=number, world_size=REPLICAS * SHARDS, timeout=timedelta(seconds=PATIENCE))
        training = Training(options.device, place=number)
    else:
        hccl_like.join(store)
        training = Training(options.device)
    changed = True
    while len(training.losses) < options.steps:
        try:
            if changed:
                training.settle()
            if training.trainers:
                training.step()
                store.set(f"at/{number}", str(len(training.losses)))
            if changed and dist.get_rank() in (0, dist.get_world_size() - 1):
                report(training, time.monotonic() - begin)
            # So that every run is alike, ranks wait here for the new ones; a real job takes in who is there.
            wait = PATIENCE / 2 if training.missing and len(training.losses) == options.steps * 2 // 3 or not training.trainers else 0
            begin = time.monotonic()
            changed = hccl_like.grow(slots=training.missing, limit=len(training.missing), wait=wait) is not None
            if not training.trainers and not changed:
                raise SystemExit("no replica is whole, and no process has joined")
        except dist.DistBackendError as error:
            begin = time.monotonic()
            hccl_like.replace(error, timeout=0)
            changed = True
        time.sleep(options.pause)
    digest = hashlib.sha256(b"".join(tensor.cpu().numpy().tobytes() for tensor in training.shard())).hexdigest()
    results.put((training.place, training.losses, digest))
    dist.destroy_process_group()


def report(training, seconds):
    replicas = len(training.trainers) // SHARDS
    print(f"step {len(training.losses)}: rank {dist.get_rank()} of {dist.get_world_size()}, replicas that train: {replicas}; "
          f"{seconds * 1e3:.0f} ms from the change to the end of the first step", flush=True)  # fmt: skip


def train_alone(steps):
    """The losses of a single process."""
    model = make_model("cpu")
    optimizer = make_optimizer(model)
    losses = []
    for step in range(steps):
        inputs, targets = batch(step)
        optimizer.zero_grad()
        loss = (model(inputs) - targets).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kill", type=int, action="append", metavar="RANK", help="a rank that is lost; may be given again (3)")
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--pause", type=float, default=0.01, help="seconds between steps, so that there is something to see (0.01)")
    parser.add_argument("--device", default="cpu", help="cpu, or the name of an accelerator (cpu)")
    options = parser.parse_args()
    options.kill = options.kill or [3]
    # Ranks are forked from a server that has imported everything and has no threads.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch.distributed.fsdp", "torch._dynamo", "hccl_like"])  # DTensor imports torch._dynamo in its first call
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    results = context.Queue()
    ranks = []

    def start():
        ranks.append(context.Process(target=run, args=(len(ranks), store.port, options, results)))
        ranks[-1].start()

    def look():
        if any(rank.exitcode not in (None, 0, -signal.SIGKILL) for rank in ranks):
            raise SystemExit("a rank has failed")

    def until(step):
        """Waits for a rank that is not killed to have made so many steps."""
        key = f"at/{min(set(range(REPLICAS * SHARDS)) - set(options.kill))}"
        while not store.check([key]) or int(store.get(key)) < step:
            look()
            time.sleep(0.002)

    try:
        for _ in range(REPLICAS * SHARDS):
            start()
        until(options.steps // 3)
        for rank in options.kill:
            print(f"rank {rank} is killed", flush=True)
            os.kill(ranks[rank].pid, signal.SIGKILL)
        if len({rank // SHARDS for rank in options.kill}) < REPLICAS:
            until(options.steps // 2)
        for _ in options.kill:
            print("a new process starts", flush=True)
            start()
        told = {}
        while len(told) < REPLICAS * SHARDS:
            try:
                place, losses, digest = results.get(timeout=1)
                told[place] = (losses, digest)
            except queue.Empty:
                look()
        for rank in ranks:
            rank.join(PATIENCE)
        codes = [rank.exitcode for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()

    alone = train_alone(options.steps)
    difference = max(abs(one - other) for losses, _ in told.values() for one, other in zip(losses, alone, strict=True))
    same = all(told[place][1] == told[place % SHARDS][1] for place in told)
    print(f"loss {alone[0]:.4f} at first, {told[0][0][-1]:.4f} after {options.steps} steps; furthest from a single process: {difference:.1e}")
    print(f"the replicas' shards are {'equal' if same else 'NOT EQUAL'}, exit codes {codes}")
    killed = [-signal.SIGKILL if number in options.kill else 0 for number in range(len(ranks))]
    if not same or difference > 1e-5 or codes != killed:
        raise SystemExit("that is not what it should be")


if __name__ == "__main__":
    main()
