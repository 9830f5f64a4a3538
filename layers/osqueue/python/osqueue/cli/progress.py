"""A progress bar on standard error, where that is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .output import is_terminal


@contextmanager
def progress(label: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """Show how far long work is; what it yields is called with how many more are done."""
    if not is_terminal(sys.stderr):
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(label, total=total)
        yield lambda done: shown.update(task, advance=done)
