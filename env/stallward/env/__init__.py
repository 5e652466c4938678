"""Recordings, scenarios and their sandbox, the twin, and the Gymnasium environments.

Importing this package after Gymnasium registers ``stallward/Twin-v0``, ``stallward/Node-v0`` and
``stallward/Replay-v0``, so ``gymnasium.make("stallward.env:stallward/Twin-v0")`` needs no other
import. Programs of a scenario import this package, too, inside the memory-limited sandbox, where
the 30 MB of Gymnasium would count. So it does not import Gymnasium itself; importing
:mod:`stallward.env.gym` does, and registers the environments in any case.
"""

import sys

if "gymnasium" in sys.modules:
    import stallward.env.gym  # noqa: F401
