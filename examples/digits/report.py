"""What the user sees: progress, a table at the end, the loss curve as a picture."""

import contextlib
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table


class Report:
    """Talks on rank 0 only: a bar on a terminal, a line now and then elsewhere. `unit`: of what is trained on."""

    def __init__(self, talks: bool, unit: str = "images"):
        self._unit = unit
        self._console = Console(quiet=not talks, highlight=False, soft_wrap=True)
        self._bar = None
        self._task = None

    def say(self, text: str) -> None:
        self._console.print(text)

    @contextlib.contextmanager
    def bar(self, first: int, steps: int):
        """Shows the steps of the `with` block."""
        if self._console.quiet or not self._console.is_terminal:
            yield
            return
        columns = (TextColumn("training"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[told]}"),
                   TimeRemainingColumn())
        with Progress(*columns, console=self._console) as self._bar:
            self._task = self._bar.add_task("", total=steps, completed=first, told="")
            yield
        self._bar = None

    def step(self, done: int, steps: int, loss: float, per_second: float) -> None:
        told = f"loss {loss:.4f}  {per_second:,.0f} {self._unit}/s"
        if self._bar is not None:
            self._bar.update(self._task, completed=done, told=told)
        else:
            self.say(f"step {done:4d}/{steps}  {told}")

    def table(self, rows: dict[str, str]) -> None:
        table = Table(show_header=False)
        for name, value in rows.items():
            table.add_row(name, value)
        self._console.print(table)


def plot(losses: list[float], accuracies: dict[int, float], span: int, title: str, target: Path,
         span_name: str = "an epoch") -> None:
    """The loss of every step, its mean over each `span` steps, and the held-out accuracy if there is one."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, left = pyplot.subplots(figsize=(8, 4.5), layout="constrained")
    left.plot(range(1, len(losses) + 1), losses, color="tab:blue", linewidth=0.8, alpha=0.5,
              label="loss of the global batch")
    if span > 1:
        means = [sum(losses[at : at + span]) / span for at in range(0, len(losses) - span + 1, span)]
        left.plot([span * (i + 0.5) + 0.5 for i in range(len(means))], means, color="tab:blue", linewidth=2,
                  label=f"mean of {span_name}")
    left.set(xlabel="step", ylabel="cross-entropy loss", yscale="log", title=title)
    left.grid(alpha=0.3)
    lines = list(left.get_lines())
    if accuracies:
        right = left.twinx()
        right.plot(list(accuracies), [100 * a for a in accuracies.values()], color="tab:orange", marker="o",
                   markersize=3, label="held-out accuracy")
        right.set(ylabel="held-out accuracy, %", ylim=(0, 101))
        lines += right.get_lines()
    left.legend(lines, [line.get_label() for line in lines], loc="center right")
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, dpi=120)
    pyplot.close(figure)
