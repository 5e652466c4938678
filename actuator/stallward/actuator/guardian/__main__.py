"""``python -m stallward.actuator.guardian OPTIONS``: the guardian process."""

import sys

from stallward.actuator.guardian.guardian import main
from stallward.actuator.ipc.options import GuardianOptions
from stallward.actuator.runtime.process_start import run_process

if __name__ == "__main__":
    sys.exit(run_process("guardian", GuardianOptions, main))
