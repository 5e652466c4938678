"""``python -m stallward.actuator.guardian``: the guardian process."""

import sys

from stallward.actuator.guardian.guardian import main

if __name__ == "__main__":
    sys.exit(main())
