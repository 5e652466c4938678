"""Recordings, scenarios and their sandbox, the twin, and the Gymnasium environments.

Importing this package registers ``stallward/Twin-v0``, ``stallward/Node-v0`` and
``stallward/Replay-v0`` with Gymnasium.
"""

from stallward.env.gym.registration import register

register()
