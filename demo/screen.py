"""What people see while the replay runs: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from demo.history import STEPS, AnalysisStep
from demo.plan import ReplayPlan, callers_of, jobs_of
from demo.replay import QueueSample, Watcher

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

LINES = 10  # without a terminal: a line each time this part of the jobs is done

INTRODUCTION = """\
A supercomputer's work of late 1993, replayed: the job log of the Intel iPSC/860 at NASA Ames Research Center.
Acknowledgement: Bill Nitzberg, NASA Ames.

{way}
One producer process, {workers} worker processes, leases of {lease:g} s. About 3 % of the jobs fail once or twice
and are tried again. {twice:,} carry ids, and a second producer sends them, too; for {waits:,} of these somebody
waits. A reaper archives what is over.{kill}
"""
SERVED = """\
{jobs:,} jobs enter over HTTP and are claimed over HTTP. Behind the API real Lambda runtime processes run the handlers;
the queue is a folder, every commit flushed to disk."""
EMBEDDED = (
    "{jobs:,} jobs go through a queue that is a folder, every commit flushed to disk. No API in between."
)
KILL = " One worker dies by kill -9 on the way."


def introduction(plan: ReplayPlan, kill: bool, embedded: bool) -> str:
    """What is about to happen."""
    callers = callers_of(plan, jobs_of(plan)).values()
    return INTRODUCTION.format(
        way=(EMBEDDED if embedded else SERVED).format(jobs=plan.jobs),
        workers=plan.workers,
        lease=plan.lease_s,
        twice=len(callers),
        waits=sum(caller.timeout_s is not None for caller in callers),
        kill=KILL if kill else "",
    )


def console_of(stream: TextIO) -> Console | None:
    """A console when the stream is a terminal and rich is installed."""
    if not stream.isatty():
        return None
    try:
        from rich.console import Console
    except ModuleNotFoundError:
        return None
    return Console(file=stream, highlight=False)


class Lines(Watcher):
    """Plain lines, for logs and pipes."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.next_share = 1 / LINES

    def moment(self, look: QueueSample) -> None:
        if look.completed >= look.total * self.next_share:
            self.next_share = (look.completed * LINES // look.total + 1) / LINES
            self._say(
                f"{look.completed / look.total:4.0%}  {look.completed:,} of {look.total:,} completed, {now(look)}"
            )

    def event(self, text: str) -> None:
        self._say(text)

    def _say(self, text: str) -> None:
        print(text, file=self.stream, flush=True)


class Bar(Watcher):
    """A progress bar; events stay on the screen above it."""

    def __init__(self, progress: Progress, jobs: int) -> None:
        self.progress = progress
        self.task = progress.add_task("replay", total=jobs, now="starting")

    def moment(self, look: QueueSample) -> None:
        self.progress.update(self.task, completed=look.completed, now=now(look))

    def event(self, text: str) -> None:
        self.progress.console.print(f"[yellow]●[/yellow] {text}")


def now(look: QueueSample) -> str:
    """What the queue holds."""
    return f"{look.queued:,} queued, {look.processing:,} running, {look.failing:,} to retry"


@contextmanager
def watching(plan: ReplayPlan, console: Console | None, stream: TextIO = sys.stderr) -> Iterator[Watcher]:
    """Somebody to tell about the replay; takes the bar away at the end."""
    if console is None:
        yield Lines(stream)
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        BarColumn(30, complete_style="cyan", finished_style="green"),
        TextColumn("{task.completed:,.0f} of {task.total:,.0f}"),
        TimeElapsedColumn(),
        TextColumn("[dim]{task.fields[now]}"),
    )
    with Progress(*columns, console=console) as progress:
        yield Bar(progress, plan.jobs)


@contextmanager
def analysing(console: Console | None, stream: TextIO) -> Iterator[Callable[[AnalysisStep], None]]:
    """Somebody to tell what the pipeline is at: a bar on a terminal, a line for each step elsewhere."""
    if console is None:
        said: set[str] = set()

        def line(step: AnalysisStep) -> None:
            if step.name not in said:
                said.add(step.name)
                print(f"pipeline: {step.name}", file=stream, flush=True)

        yield line
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        BarColumn(30, complete_style="cyan", finished_style="green"),
        TextColumn("pipeline"),
        TimeElapsedColumn(),
        TextColumn("[dim]{task.fields[now]}"),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("pipeline", total=len(STEPS), now="")

        def bar(step: AnalysisStep) -> None:
            part = step.done / step.total if step.total else 0.0
            progress.update(task, completed=STEPS.index(step.name) + part, now=step.name)

        yield bar
