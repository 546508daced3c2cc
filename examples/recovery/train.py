#!/usr/bin/env python3
"""A rank is killed in the middle of training, and the others go on: in the same processes, from what is in their memory.

    python examples/recovery/train.py --ranks 4 --kill 2 --at-step 30

Starts the ranks itself, because a launcher that starts all of them again when one dies is what this does without. The examples' README.md says
how it works.
"""

import argparse
import json
import os
import signal
import socket
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist

import hccl_like


def parse(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--ranks", type=int, default=4)
    add("--steps", type=int, default=60)
    add("--kill", type=int, action="append", metavar="RANK", help="a rank that dies; may be given again (2)")
    add("--at-step", type=int, default=30, help="at which step the first one dies, the next one ten steps later (30)")
    add("--width", type=int, default=256, help="of the model (256)")
    add("--device", default="cpu", help="cpu, or the name of an accelerator (cpu)")
    return parser.parse_args(argv)


class Training:
    """Data-parallel training of a small model; everything that a rank has to keep is in here."""

    def __init__(self, rank: int, args):
        self.device = torch.device(args.device, 0) if args.device != "cpu" else torch.device("cpu")
        torch.manual_seed(7)
        self.target = torch.nn.Linear(16, 4).to(self.device)
        self.model = torch.nn.Sequential(
            torch.nn.Linear(16, args.width), torch.nn.Tanh(), torch.nn.Linear(args.width, 4)
        ).to(self.device)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=3e-3)
        self.data = torch.Generator().manual_seed(100 + rank)
        self.step = 0
        # The optimiser makes its tensors in its first step. Without gradients that step changes nothing else.
        for parameter in self.model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        self.optimizer.step()

    def state(self) -> list[torch.Tensor]:
        """What is to be the same on all ranks."""
        moments = [value for state in self.optimizer.state.values() for value in state.values()]
        return [*(parameter.data for parameter in self.model.parameters()), *moments]

    def one_step(self) -> float:
        inputs = torch.randn(32, 16, generator=self.data).to(self.device)
        loss = torch.nn.functional.mse_loss(self.model(inputs), self.target(inputs).detach())
        self.optimizer.zero_grad(set_to_none=False)
        loss.backward()
        gradients = torch.cat([parameter.grad.flatten() for parameter in self.model.parameters()])
        # A wait with a time-out blocks the host, also on a device, whose optimiser would else step before the call is known to
        # have failed.
        dist.all_reduce(gradients, dist.ReduceOp.AVG, async_op=True).wait(timedelta(seconds=20))
        for parameter, part in zip(
            self.model.parameters(), gradients.split([p.numel() for p in self.model.parameters()]), strict=True
        ):
            parameter.grad.copy_(part.view_as(parameter))
        self.optimizer.step()
        self.step += 1
        return loss.item()

    def agree(self) -> None:
        """All ranks go on from the state of the one that is farthest: it has made the last step that any rank has made."""
        told = [torch.zeros(1, dtype=torch.int64) for _ in range(dist.get_world_size())]
        dist.all_gather(told, torch.tensor([self.step]))
        steps = torch.cat(told)
        farthest = int(steps.argmax())
        for tensor in self.state():
            dist.broadcast(tensor, farthest)
        self.step = int(steps[farthest])


def run(rank: int, args, store) -> dict:
    dist.init_process_group(
        "hccl-like", store=store, rank=rank, world_size=args.ranks, timeout=timedelta(seconds=10),
        device_id=torch.device(args.device, 0) if args.device != "cpu" else None,
    )  # fmt: skip
    dies = {victim: args.at_step + 10 * i for i, victim in enumerate(args.kill)}
    training = Training(rank, args)
    members = list(range(args.ranks))
    recoveries, losses = [], []
    while training.step < args.steps:
        if dies.get(rank) == training.step:
            store.set("killed", str(time.monotonic()))
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            losses.append(training.one_step())
        except dist.DistBackendError as error:
            noticed = time.monotonic()
            lost = [members[number] for number in hccl_like.replace(error, timeout=0).lost]
            members = [other for other in members if other not in lost]
            training.agree()
            training.one_step()
            killed = float(store.get("killed"))
            recoveries.append({"lost": lost, "step": training.step, "noticed": noticed - killed, "goes_on": time.monotonic() - killed})
            failure = hccl_like.failure(error)
            print(
                f"rank {rank}: {failure.kind} [HCCL-LIKE-{failure.number}], without {lost}: noticed after "
                f"{recoveries[-1]['noticed'] * 1e3:.0f} ms, trained on after {recoveries[-1]['goes_on'] * 1e3:.0f} ms at step "
                f"{training.step}",
                flush=True,
            )
    same = torch.cat([tensor.flatten().double().cpu() for tensor in training.state()])
    first = same.clone()
    dist.broadcast(first, 0)
    result = {"rank": rank, "same": bool(torch.equal(same, first)), "losses": [losses[0], losses[-1]], "recoveries": recoveries}
    dist.destroy_process_group()
    return result


def main(argv: list[str]) -> int:
    args = parse(argv)
    args.kill = args.kill or [2]
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    port = listener.getsockname()[1]
    children = {}
    for rank in range(args.ranks):
        reader, writer = os.pipe()
        if pid := os.fork():
            os.close(writer)
            children[rank] = (pid, reader)
            continue
        status = 1
        try:
            listener.close()
            torch.set_num_threads(1)
            result = run(rank, args, dist.TCPStore("127.0.0.1", port, is_master=False, wait_for_workers=False))
            os.write(writer, json.dumps(result).encode())
            status = 0
        finally:
            sys.stdout.flush()
            os._exit(status)
    # The store outlives every rank, as that of a launcher does.
    store = dist.TCPStore(
        "127.0.0.1", port, is_master=True, master_listen_fd=listener.detach(), wait_for_workers=False
    )
    results = {}
    for rank, (pid, reader) in children.items():
        with os.fdopen(reader) as told:
            text = told.read()
        os.waitpid(pid, 0)
        if text:
            results[rank] = json.loads(text)
    del store
    print(json.dumps(results))
    wanted = [rank for rank in range(args.ranks) if rank not in args.kill]
    good = sorted(results) == wanted and all(one["same"] and one["losses"][1] < one["losses"][0] for one in results.values())
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
