"""The numbers of nodes and their operations.

In compiled code, a number is a vector of the numbers of eight nodes, and a condition is a vector
of their conditions. Called from Python, or compiled for one node at a time, these are functions of
floats. ``+ - * / < <= > >= ==`` work in all; ``& |`` combine conditions.
"""

from __future__ import annotations

import math

import numpy as np

from stallward.env.twin.simd.jit import operation


@operation
def where(condition: bool, one: float, other: float) -> float:
    """Return ``one`` where the condition holds, else ``other``; both are computed."""
    return one if condition else other


@operation
def minimum(x: float, y: float) -> float:
    """Return the smaller number; ``y`` if one is NaN."""
    return x if x < y else y  # noqa: FURB136 - NaN


@operation
def maximum(x: float, y: float) -> float:
    """Return the larger number; ``y`` if one is NaN."""
    return x if x > y else y  # noqa: FURB136 - NaN


@operation
def floor(x: float) -> float:
    """Return the largest whole number that is not above ``x``."""
    return float(np.floor(x))


@operation
def square_root(x: float) -> float:
    """Return the square root of a number that is not negative."""
    return math.sqrt(x)


@operation
def is_nan(x: float) -> bool:
    """Return whether ``x`` is NaN."""
    return math.isnan(x)


@operation
def negate(condition: bool) -> bool:
    """Return the opposite of the condition."""
    return not condition


@operation
def anywhere(condition: bool) -> bool:
    """Return whether the condition holds for any of the nodes that are computed at once."""
    return condition
