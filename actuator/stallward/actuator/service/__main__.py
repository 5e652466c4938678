"""``python -m stallward.actuator.service``: the service process."""

import sys

from stallward.actuator.service.server import main

if __name__ == "__main__":
    sys.exit(main())
