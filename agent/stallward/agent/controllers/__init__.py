"""The shipped controllers, one file each. To add one, add its entry to ``SHIPPED``.

A process that runs one controller imports that one: the names are looked up here, as those of
other packages are among their entry points.
"""

from collections.abc import Mapping
from typing import Final

SHIPPED: Final[Mapping[str, str]] = {
    "none": "stallward.agent.controllers.none:ENTRY",
    "static": "stallward.agent.controllers.static:ENTRY",
    "partition": "stallward.agent.controllers.partition:ENTRY",
    "psi-hold": "stallward.agent.controllers.psi_hold:ENTRY",
    "latd": "stallward.agent.controllers.latd:LATD",
    "latd-cgroup": "stallward.agent.controllers.latd:CGROUP",
    "latd-grow": "stallward.agent.controllers.latd:GROW",
    "onnx": "stallward.agent.controllers.onnx:ENTRY",
    "remote": "stallward.agent.controllers.remote:ENTRY",
    "excite": "stallward.agent.controllers.excite:ENTRY",
}
"""The module of each controller's entry, and the name of the entry there."""
PROFILE_READER: Final = "stallward.agent.profile:read_profile"
"""What reads the file that an argument ``profile`` names, where one is given."""
