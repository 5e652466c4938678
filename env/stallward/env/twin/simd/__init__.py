"""Model code written for one node and compiled to run eight of them at once.

The functions of a model are plain Python on floats, and can be called so. Marked with
:func:`~stallward.env.twin.simd.jit.model` they can also be called from compiled kernels, where
each number is a vector of eight lanes, one a node: an operation on numbers costs the same for
eight nodes as for one. What differs between nodes cannot be branched on, so models choose with
:func:`~stallward.env.twin.simd.values.where` instead of ``if``, and combine conditions with ``&``,
``|`` and :func:`~stallward.env.twin.simd.values.negate`. Branches and loops may follow what all
nodes
share: counts, sub-steps, and :func:`~stallward.env.twin.simd.values.anywhere`.

- ``values``: the numbers and their operations.
- ``elementary``: exp, log, power and the like, the same bits everywhere.
- ``layout``, ``records``: a node's state by name.
- ``one_lane``: what is done to one of the eight nodes.
- ``jit``: the decorators, and where compiled code is kept.
- ``numba_internals``, ``numba_version``: what is used of numba beyond its public interface, and
  the versions with which that works.
"""
