"""Every target of the fuzzer; each file of targets has its line here."""

from __future__ import annotations

from functools import cache

import fuzz_targets_files
import fuzz_targets_kernel
import fuzz_targets_lens
import fuzz_targets_process
import fuzz_targets_results
import fuzz_targets_signals
import fuzz_targets_sources
import fuzz_targets_traces
import fuzz_targets_wire
from fuzz_target import Target


@cache
def targets() -> dict[str, Target]:
    """Every target by name."""
    modules = (
        fuzz_targets_kernel,
        fuzz_targets_process,
        fuzz_targets_signals,
        fuzz_targets_files,
        fuzz_targets_results,
        fuzz_targets_wire,
        fuzz_targets_sources,
        fuzz_targets_traces,
        fuzz_targets_lens,
    )
    every_target = [target for module in modules for target in module.targets()]
    by_name = {target.name: target for target in every_target}
    assert len(by_name) == len(every_target), "two targets have one name"
    return by_name
