"""Blocks of a comparison on a twin, many at once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from stallward.actuator.runtime.temporary_folders import temporary_folder
from stallward.evaluation.blocks.plan import PlannedBlock
from stallward.evaluation.blocks.request import Runner, RunRequest
from stallward.evaluation.blocks.store import BlockStore
from stallward.training.parallel.executor import Executor, Job
from stallward.training.progress import Report

_Files = dict[str, bytes]
"""The files of a recording: name -> content."""


def run_blocks(
    runner: Runner,
    planned: Sequence[tuple[PlannedBlock, RunRequest]],
    store: BlockStore,
    executor: Executor,
    *,
    reads: Sequence[Path],
    report: Report,
) -> None:
    """Run blocks on a twin; each is committed as soon as it is done.

    Nothing disturbs a twin, so no block is run again.

    Args:
        runner: The twin.
        planned: The blocks.
        store: Where they are kept.
        executor: Runs them.
        reads: The files that arms decide by.
        report: Called with the progress.

    Raises:
        StallwardError: If a block cannot be run. The finished ones are kept.
    """

    def keep(number: int, files: _Files) -> None:
        block, _ = planned[number]
        folder = store.open(block)
        folder.mkdir()
        for name, content in files.items():
            (folder / name).write_bytes(content)
        store.commit(block, runner.facts)

    executor.run(
        [
            Job(block.directory, partial(_run, runner, request, block.directory), tuple(reads))
            for block, request in planned
        ],
        report,
        keep=keep,
    )


def _run(runner: Runner, request: RunRequest, name: str, report: Report) -> _Files:
    report(name, 0.0)
    with temporary_folder("block") as folder:
        runner.run_block(request, folder / "recording")
        files = {file.name: file.read_bytes() for file in (folder / "recording").iterdir()}
    report(name, 1.0)
    return files
