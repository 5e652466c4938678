"""Model code written for one node and compiled to run eight of them at once.

The functions of a model are plain Python on floats and can be called from Python. If marked with
:func:`~stallward.env.twin.simd.jit.model`, they can also be called from compiled kernels. There
each number is a vector with eight lanes, one for each node, and an operation takes the same time
for eight nodes as for one. Code cannot branch on a value that differs between nodes. So models
choose with :func:`~stallward.env.twin.simd.values.where` instead of ``if``, and combine conditions
with ``&``, ``|`` and :func:`~stallward.env.twin.simd.values.negate`. Branches and loops may depend
on values that all nodes share: counts, sub-steps, and
:func:`~stallward.env.twin.simd.values.anywhere`.

- ``values``: numbers and their operations.
- ``vectors``: the vector types, and how operations on them are defined.
- ``elementary``: exp, log, power and similar functions, with the same bits on every machine.
- ``layout``, ``records``: a node's state by name.
- ``one_lane``: operations on one of the eight nodes.
- ``jit``: the decorators, and the cache of compiled code.
- ``numba_internals``, ``numba_version``: the parts of numba that are not its public interface, and
  the versions that have them.
"""
