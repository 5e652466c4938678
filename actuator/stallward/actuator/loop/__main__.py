"""``python -m stallward.actuator.loop``: the loop process."""

import sys

from stallward.actuator.loop.loop import main

if __name__ == "__main__":
    sys.exit(main())
