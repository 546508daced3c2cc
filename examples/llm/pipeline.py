"""Pipeline parallelism: which blocks a rank has, and the schedule that runs them."""

import torch
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
)

from .data import VOCABULARY
from .layout import Grid
from .model import GPT

SCHEDULES = {
    "gpipe": ScheduleGPipe,
    "1f1b": Schedule1F1B,
    "interleaved": ScheduleInterleaved1F1B,
    "zero-bubble": ScheduleInterleavedZeroBubble,
}
STAGES_PER_RANK = {"gpipe": 1, "1f1b": 1, "interleaved": 2, "zero-bubble": 2}


def stages(ranks: int, schedule: str) -> int:
    return ranks * STAGES_PER_RANK[schedule] if ranks > 1 else 1


def own_stages(grid: Grid, schedule: str) -> range:
    """Stage i lies on rank i modulo the number of ranks."""
    return range(grid.place("pp"), stages(grid.layout.pp, schedule), grid.layout.pp)


def parts(model: GPT, grid: Grid, schedule: str) -> list[GPT]:
    """The stages of this rank, blocks shared out as evenly as possible."""
    count, depth = stages(grid.layout.pp, schedule), len(model.blocks)
    return [model.part(range(depth * i // count, depth * (i + 1) // count)) for i in own_stages(grid, schedule)]


class Pipeline:
    def __init__(self, modules: list, grid: Grid, size, rows: int, args, loss):
        """`rows`: of a micro-batch on this rank."""
        layout = grid.layout
        count = stages(layout.pp, args.schedule)
        tokens = size.context // layout.cp
        # Shapes are told, or the schedule would find them out by an additional pass through all stages. Between two
        # stages a rank of `tp` passes on its part of the sequence, at the end its part of the logits. Without
        # `requires_grad` no gradients would come back.
        between = torch.empty(rows, tokens // layout.tp, size.width, device=grid.device, requires_grad=True)
        begin = torch.empty(rows, tokens, dtype=torch.long, device=grid.device)
        end = torch.empty(rows, tokens, VOCABULARY // layout.tp, device=grid.device, requires_grad=True)
        own = [
            PipelineStage(module, index, count, grid.device, input_args=between if index else begin,
                          output_args=between if index < count - 1 else end, group=grid.group("pp"))
            for index, module in zip(own_stages(grid, args.schedule), modules)
        ]
        kind = SCHEDULES[args.schedule]
        self._schedule = kind(own if STAGES_PER_RANK[args.schedule] > 1 else own[0], args.micro_batches, loss_fn=loss)
        self._first, self._last = own[0].is_first, own[-1].is_last
        self._nothing = torch.zeros((), device=grid.device)

    def learn(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Makes the gradients; the mean loss of the micro-batches on the last stage's rank, 0 on the others."""
        losses: list[torch.Tensor] = []
        given = [tokens] if self._first else []
        wanted = {"target": targets, "losses": losses} if self._last else {}
        self._schedule.step(*given, **wanted, return_outputs=False)
        return torch.stack([loss.detach() for loss in losses]).mean() if self._last else self._nothing
