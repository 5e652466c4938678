"""``python -m stallward.actuator.service OPTIONS``: the service process."""

import sys

from stallward.actuator.ipc.options import ServiceOptions
from stallward.actuator.runtime.process_start import run_process
from stallward.actuator.service.server import main

if __name__ == "__main__":
    sys.exit(run_process("service", ServiceOptions, main))
