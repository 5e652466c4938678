"""Model code written for one node and compiled to run eight of them at once.

The functions of a model are plain Python on floats, and can be called so. Marked with
:func:`~stallward.env.twin.simd.jit.model` they can also be called from compiled kernels, where
each number is a vector of eight lanes, one a node: an operation on numbers costs the same for
eight nodes as for one. What differs between nodes cannot be branched on, so models choose with
:func:`~stallward.env.twin.simd.values.where` instead of ``if``, and combine conditions with ``&``,
``|`` and :func:`~stallward.env.twin.simd.values.negate`. Branches and loops may follow what all
nodes
share: counts, sub-steps, and :func:`~stallward.env.twin.simd.values.anywhere`.

- :mod:`~stallward.env.twin.simd.values`: the numbers and their operations.
- :mod:`~stallward.env.twin.simd.elementary`: exp, log, power and the like, the same bits
everywhere.
- :mod:`~stallward.env.twin.simd.layout`, :mod:`~stallward.env.twin.simd.records`: a node's state
by name.
- :mod:`~stallward.env.twin.simd.one_lane`: what is done to one of the eight nodes.
- :mod:`~stallward.env.twin.simd.jit`: the decorators, and where compiled code is kept.
"""
