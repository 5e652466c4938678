"""Model code written for one node and compiled to run eight of them at once.

The functions of a model are plain Python on floats and can be called from Python. If marked with
:func:`~stallward.env.twin.simd.jit.model`, they can also be called from compiled kernels. There
each number is a vector with eight lanes, one for each node, and an operation takes the same time
for eight nodes as for one. Code cannot branch on a value that differs between nodes. So models
choose with :func:`~stallward.env.twin.simd.values.where` instead of ``if``, and combine conditions
with ``&``, ``|`` and :func:`~stallward.env.twin.simd.values.negate`. Branches and loops may depend
on values that all nodes share: counts, sub-steps, and
:func:`~stallward.env.twin.simd.values.anywhere`.

With a numba that vectors have not been tried with, the same code is compiled for one node at a
time, and gives the same numbers.

- ``backend``: which of the two it is.
- ``values``: numbers and their operations.
- ``elementary``: exp, log, power and similar functions, with the same bits on every machine.
- ``layout``, ``records``, ``plain_records``: a node's state by name.
- ``one_lane``: operations on one of the nodes that are computed at once.
- ``laws``: rules that nodes follow, compiled from the same functions.
- ``jit``, ``sources``, ``cache_folder``: the decorators, and where and until when compiled code is
  kept.
- ``vectors``, ``vector_operations``, ``vector_records``, ``kernel_cache``: the vector types, what
  the operations are on them, and the cache of their code.
- ``numba_internals``: the parts of numba, not its public interface, that these four need.
"""

from stallward.env.twin.simd.backend import VECTORS

if VECTORS:
    from stallward.env.twin.simd import vector_operations  # noqa: F401 - tells numba of them
