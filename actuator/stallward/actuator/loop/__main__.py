"""``python -m stallward.actuator.loop OPTIONS`` runs the loop process."""

import sys

from stallward.actuator.ipc.options import LoopOptions
from stallward.actuator.runtime.process_start import (
    SINGLE_THREADED_MATHS,
    require_environment,
    run_process,
)

if __name__ == "__main__":
    require_environment(SINGLE_THREADED_MATHS, "loop")
    from stallward.actuator.loop.loop import main  # imports numpy

    sys.exit(run_process("loop", LoopOptions, main))
