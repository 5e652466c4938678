"""Elementary functions of numbers, made of additions, multiplications and divisions.

So they vectorise and do not depend on the mathematical library of the machine. They are exact to a
few units in the last place. The polynomials are those of fdlibm (Sun Microsystems, 1993) and
Taylor's.
"""

from __future__ import annotations

import math
import struct
from typing import Final

import numpy as np

from stallward.env.twin.simd.jit import model, operation
from stallward.env.twin.simd.values import floor, maximum, minimum, square_root, where

SHIFT: Final = 6755399441055744.0
"""1.5 * 2 ** 52: a number added to it is rounded to a whole number, which is in the low bits."""
SHIFT_BITS: Final = struct.unpack("<q", struct.pack("<d", SHIFT))[0]
ROOT_HALF_BITS: Final = struct.unpack("<q", struct.pack("<d", math.sqrt(0.5)))[0]
_LN2_HIGH: Final = 6.93147180369123816490e-01
_LN2_LOW: Final = 1.90821492927058770002e-10
_PER_LN2: Final = 1.4426950408889634


@model
def _rounded(x: float) -> float:
    """Return the nearest whole number, for numbers up to 2 ** 51."""
    return (x + SHIFT) - SHIFT


@operation
def times_two_to(x: float, power: float) -> float:
    """Return ``x * 2 ** power`` for a whole power."""
    whole = np.float64(power + SHIFT).view(np.int64)
    return np.int64(np.float64(x).view(np.int64) + (whole << 52)).view(np.float64)


@operation
def mantissa(x: float) -> float:
    """Return ``x`` divided by the power of two that brings it between sqrt(1/2) and sqrt(2)."""
    bits = np.float64(x).view(np.int64)
    return np.int64(bits - ((bits - ROOT_HALF_BITS) & -(1 << 52))).view(np.float64)


@operation
def exponent(x: float) -> float:
    """Return the exponent of the power of two that :func:`mantissa` divides by."""
    return float((np.float64(x).view(np.int64) - ROOT_HALF_BITS) >> 52)


@model
def exp(x: float) -> float:
    """Return e ** x for ``x`` clipped to [-700, 700]."""
    x = minimum(maximum(x, -700.0), 700.0)
    twos = _rounded(x * _PER_LN2)
    r = (x - twos * _LN2_HIGH) - twos * _LN2_LOW
    p = 1.0 / 6227020800.0
    p = p * r + 1.0 / 479001600.0
    p = p * r + 1.0 / 39916800.0
    p = p * r + 1.0 / 3628800.0
    p = p * r + 1.0 / 362880.0
    p = p * r + 1.0 / 40320.0
    p = p * r + 1.0 / 5040.0
    p = p * r + 1.0 / 720.0
    p = p * r + 1.0 / 120.0
    p = p * r + 1.0 / 24.0
    p = p * r + 1.0 / 6.0
    p = p * r + 0.5
    return times_two_to(p * r * r + r + 1.0, twos)


@model
def log(x: float) -> float:
    """Return the natural logarithm of a positive normal number."""
    twos = exponent(x)
    f = mantissa(x) - 1.0
    s = f / (2.0 + f)
    z = s * s
    p = 1.479819860511658591e-01
    p = p * z + 1.531383769920937332e-01
    p = p * z + 1.818357216161805012e-01
    p = p * z + 2.222219843214978396e-01
    p = p * z + 2.857142874366239149e-01
    p = p * z + 3.999999999940941908e-01
    p = p * z + 6.666666666666735130e-01
    half = 0.5 * f * f
    return twos * _LN2_HIGH - ((half - (s * (half + p * z) + twos * _LN2_LOW)) - f)


@model
def log_of_one_plus(x: float) -> float:
    """Return log(1 + x) for ``x`` not below 0; it is also exact for small ``x``."""
    u = 1.0 + x
    return log(u) + (x - (u - 1.0)) / u


@model
def power(x: float, exponent: float) -> float:
    """Return ``x ** exponent`` for ``x`` not below 0; 0 ** 0 is 1."""
    result = exp(exponent * log(maximum(x, 1e-300)))
    return where(x > 0.0, result, where(exponent > 0.0, 0.0, 1.0))


@model
def remainder(x: float, step: float) -> float:
    """Return ``x % step`` for numbers that are not negative."""
    left = x - floor(x / step) * step
    return where(left < 0.0, left + step, where(left >= step, left - step, left))


@model
def normals(radius: float, turn: float) -> tuple[float, float]:
    """Return two normal numbers from two uniform ones in [0, 1) (Box and Muller, 1958)."""
    size = square_root(-2.0 * log(1.0 - radius))
    quarters = _rounded(4.0 * turn)
    t = (turn - 0.25 * quarters) * (2.0 * math.pi)
    sine, cosine = _sine(t), _cosine(t)
    odd = (quarters == 1.0) | (quarters == 3.0)
    one, other = where(odd, sine, cosine), where(odd, cosine, sine)
    one = where((quarters == 1.0) | (quarters == 2.0), -one, one)
    other = where((quarters == 2.0) | (quarters == 3.0), -other, other)
    return size * one, size * other


@model
def _sine(t: float) -> float:
    """Return the sine of an angle within an eighth of a turn."""
    z = t * t
    p = 1.0 / 6227020800.0
    p = p * z - 1.0 / 39916800.0
    p = p * z + 1.0 / 362880.0
    p = p * z - 1.0 / 5040.0
    p = p * z + 1.0 / 120.0
    p = p * z - 1.0 / 6.0
    return t + t * z * p


@model
def _cosine(t: float) -> float:
    """Return the cosine of an angle within an eighth of a turn."""
    z = t * t
    p = 1.0 / 20922789888000.0
    p = p * z - 1.0 / 87178291200.0
    p = p * z + 1.0 / 479001600.0
    p = p * z - 1.0 / 3628800.0
    p = p * z + 1.0 / 40320.0
    p = p * z - 1.0 / 720.0
    p = p * z + 1.0 / 24.0
    return 1.0 - 0.5 * z + z * z * p
