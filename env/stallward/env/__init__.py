"""Recordings, scenarios and their sandbox, the twin, and the Gymnasium environments.

Programs of a scenario import this package, too, inside the memory-limited sandbox, where the 30 MB
of Gymnasium would count. So it does not import Gymnasium; :mod:`stallward.env.gym` does, and
registers the environments: ``gymnasium.make("stallward.env.gym:stallward/Twin-v0")``.
"""
