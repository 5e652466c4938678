"""A bar that shows on a terminal how far a long step is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn


@contextmanager
def progress_bar(title: str) -> Iterator[Callable[[str, float], None]]:
    """Show the bar on standard error.

    Args:
        title: What is done, such as a command's name.

    Yields:
        What reports progress: a message, and the share that is done, 0 to 1.
    """
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[what]}"),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(title, total=1.0, what="")

        def report(message: str, share: float) -> None:
            bar.update(task, completed=share, what=message)

        yield report
        bar.update(task, completed=1.0, what="")
