"""``python -m stallward.actuator.guardian OPTIONS``: the guardian process."""

import os
import sys

from stallward.actuator.config.load import load_config
from stallward.actuator.config.profiles import with_profiles
from stallward.actuator.errors import JournalError
from stallward.actuator.guardian.first_start import check_first_start
from stallward.actuator.guardian.guardian import EXIT_GAVE_UP, Guardian
from stallward.actuator.guardian.sd_notify import Notifier
from stallward.actuator.ipc.channels import EXIT_USER
from stallward.actuator.ipc.options import GuardianOptions, Modules
from stallward.actuator.ipc.shared_memory import PLACES
from stallward.actuator.runtime.process_setup import allow_open_files, lock_memory, raise_priority
from stallward.actuator.runtime.process_start import run_process
from stallward.actuator.runtime.stderr_line import say
from stallward.actuator.targets.sources import not_installed
from stallward.agent.errors import StallwardError


def main(options: GuardianOptions) -> int:
    """Run the guardian process; returns its exit status."""
    notifier = Notifier.from_environment(os.environ)
    try:
        config = with_profiles(load_config(options.config))
        check_first_start(config)
        if config.follows_pods and not options.pods_module:
            raise not_installed()
        guardian = Guardian(
            config,
            # Where a terminal started it, SIGHUP means that the terminal is gone.
            config_path=None if os.isatty(0) else options.config,
            owner_fd=options.owner_fd,
            owned_folder=options.owned_folder,
            notifier=notifier,
            modules=Modules(pods=options.pods_module),
        )
        allow_open_files(PLACES)  # one for each setting that may have to be undone
        lock_memory()
        raise_priority()
        return guardian.run()
    except StallwardError as error:
        say(str(error))
        notifier.status(str(error))
        # A failed restore, or no room for a journal, may pass: another start tries again.
        return EXIT_GAVE_UP if isinstance(error, JournalError) else EXIT_USER


if __name__ == "__main__":
    sys.exit(run_process("guardian", GuardianOptions, main))
