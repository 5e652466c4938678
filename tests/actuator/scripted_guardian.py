"""``python -m scripted_guardian OPTIONS``: a guardian whose loop does what a test has written.

Beside the configuration there is ``guardian.py``, which is run first; it may set ``look_s``.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from stallward.actuator.config.load import load_config
from stallward.actuator.guardian.guardian import Guardian
from stallward.actuator.guardian.sd_notify import Notifier
from stallward.actuator.ipc.options import GuardianOptions, Modules
from stallward.actuator.runtime.process_start import run_process

MODULES = Modules(loop="scripted_loop", service="scripted_service")
LOOK_S = 60.0
"""It wakes up for what happens and for what is due, not because it looks around anyway."""


def main(options: GuardianOptions) -> int:
    names: dict[str, Any] = {"folder": options.config.parent, "look_s": LOOK_S}
    exec(options.config.with_name("guardian.py").read_text(), names)
    guardian = Guardian(
        load_config(options.config),
        notifier=Notifier.from_environment(os.environ),
        modules=MODULES,
        look_s=names["look_s"],
    )
    return guardian.run()


if __name__ == "__main__":
    sys.exit(run_process("guardian", GuardianOptions, main))
