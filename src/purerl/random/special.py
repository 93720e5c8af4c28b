"""The special functions that turn `purerl.random`'s uniform numbers into others.

A float32 result is computed in float64 and rounded once: nearer to a float32 reference than a
second float32 evaluation could be, and independent of which library evaluates a logarithm (on
another device, for a strided tensor, in compiled code), since those differ in the last bits of
float64 only. Where the reference rounds *before* a step that magnifies, its rounding is kept.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor


class _Piecewise(NamedTuple):
    """erf⁻¹(x)/x by polynomials, highest power first, of w = −log(1 − x²).

    The first holds below the first limit, in w − centre; each other one from its limit on, in
    √w − centre. Source: Giles, "Approximating the erfinv function", GPU Computing Gems, 2011.
    """

    limits: tuple[float, ...]
    centres: tuple[float, ...]
    pieces: tuple[tuple[float, ...], ...]
    root_two: float


# the published numbers of single precision, rounded to float32 as a float32 program reads them
_SINGLE = _Piecewise(
    (5.0,),
    (2.5, 3.0),
    (
        (2.810226362726098e-08, 3.432739390518691e-07, -3.523387704262859e-06,
         -4.391506536194356e-06, 0.00021858086984138936, -0.001253725029528141,
         -0.004177681636065245, 0.24664072692394257, 1.5014094114303589),
        (-0.0002002142573473975, 0.0001009505576803349, 0.0013493432197719812,
         -0.003673428436741233, 0.005739507731050253, -0.007622461300343275,
         0.00943887047469616, 1.0016740560531616, 2.832976818084717),
    ),
    1.4142135381698608,
)  # fmt: skip
_DOUBLE = _Piecewise(
    (6.25, 16.0),
    (3.125, 3.25, 5.0),
    (
        (-3.6444120640178196996e-21, -1.685059138182016589e-19, 1.2858480715256400167e-18,
         1.115787767802518096e-17, -1.333171662854620906e-16, 2.0972767875968561637e-17,
         6.6376381343583238325e-15, -4.0545662729752068639e-14, -8.1519341976054721522e-14,
         2.6335093153082322977e-12, -1.2975133253453532498e-11, -5.4154120542946279317e-11,
         1.051212273321532285e-09, -4.1126339803469836976e-09, -2.9070369957882005086e-08,
         4.2347877827932403518e-07, -1.3654692000834678645e-06, -1.3882523362786468719e-05,
         0.0001867342080340571352, -0.00074070253416626697512, -0.0060336708714301490533,
         0.24015818242558961693, 1.6536545626831027356),
        (0.0, 0.0, 0.0, 0.0, 2.2137376921775787049e-09, 9.0756561938885390979e-08,
         -2.7517406297064545428e-07, 1.8239629214389227755e-08, 1.5027403968909827627e-06,
         -4.013867526981545969e-06, 2.9234449089955446044e-06, 1.2475304481671778723e-05,
         -4.7318229009055733981e-05, 6.8284851459573175448e-05, 2.4031110387097893999e-05,
         -0.0003550375203628474796, 0.00095328937973738049703, -0.0016882755560235047313,
         0.0024914420961078508066, -0.0037512085075692412107, 0.005370914553590063617,
         1.0052589676941592334, 3.0838856104922207635),
        (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, -2.7109920616438573243e-11, -2.5556418169965252055e-10,
         1.5076572693500548083e-09, -3.7894654401267369937e-09, 7.6157012080783393804e-09,
         -1.4960026627149240478e-08, 2.9147953450901080826e-08, -6.7711997758452339498e-08,
         2.2900482228026654717e-07, -9.9298272942317002539e-07, 4.5260625972231537039e-06,
         -1.9681778105531670567e-05, 7.5995277030017761139e-05, -0.00021503011930044477347,
         -0.00013871931833623122026, 1.0103004648645343977, 4.8499064014085844221),
    ),
    1.4142135623730951,
)  # fmt: skip

# erf(x)/x as a quotient of polynomials in x², highest power first, and where it has reached 1
_ERF_NUMERATOR = (
    0.00022905065270606428, 0.0034082909114658833, 0.050955694168806076,
    0.18520832061767578, 1.1283791065216064,
)  # fmt: skip
_ERF_DENOMINATOR = (
    -1.1791603071742429e-07, 2.354796561121475e-05, 0.0010179625824093819,
    0.01407046988606453, 0.11098504811525345, 0.4974692463874817, 1.0,
)  # fmt: skip
_ERF_IS_ONE = 3.8325068950653076


def normal_quantile(x: Tensor) -> Tensor:
    """Return √2 erf⁻¹(x), the standard normal's quantile at (1 + x)/2, for floating |x| < 1."""
    limits, centres, pieces, root_two = _SINGLE if x.dtype is torch.float32 else _DOUBLE
    # near |x| = 1 the rounding of the square decides the result, so it must be the reference's
    logarithm = (x * x).double().neg_().add_(1.0).log_()
    root = logarithm.neg().sqrt_()
    indicators = [(logarithm < -limit).double() for limit in limits]
    variable = logarithm.neg_().sub_(centres[0])
    for indicator, centre in zip(indicators, centres[1:], strict=True):
        variable.add_((root - centre).sub_(variable).mul_(indicator))
    ratio = _polynomial(variable, pieces, indicators)
    return ratio.mul_(x).mul_(root_two).to(x.dtype)


def _polynomial(
    x: Tensor, pieces: tuple[tuple[float, ...], ...], indicators: list[Tensor]
) -> Tensor:
    """Evaluate the first piece at x, or a later one where its indicator, and those before, is 1.

    Coefficients are chosen by arithmetic, in place: ``where`` costs four times as much at size.
    """
    starts = torch.tensor(pieces[0], dtype=torch.float64, device="cpu").unbind(0)
    value = torch.zeros_like(x)
    for start, *coefficients in zip(starts, *pieces, strict=True):
        value.mul_(x).add_(start)
        for indicator, (before, after) in zip(indicators, pairwise(coefficients), strict=True):
            value.add_(indicator, alpha=after - before)
    return value


def erf(x: Tensor) -> Tensor:
    """Return the error function; in float32, by the reference's quotient and roundings.

    A bound of a truncated normal enters here: one unit in its last place moves every draw.
    """
    if x.dtype is not torch.float32:
        return torch.erf(x)
    square = (x * x).double()
    numerator = (x.double() * _rounded(_ERF_NUMERATOR, square)).float().double()
    ratio = (numerator / _rounded(_ERF_DENOMINATOR, square)).float()
    return torch.where(x.abs() >= _ERF_IS_ONE, x.sign(), ratio)


def _rounded(coefficients: tuple[float, ...], x: Tensor) -> Tensor:
    """Evaluate a polynomial with every step rounded to float32 once, as fused operations do."""
    value = torch.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        value = (value * x + coefficient).float().double()
    return value


def fused(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """Return a·b + c, rounded once to the dtype of the arguments, on every device.

    A compiled reference contracts the two operations to one; torch has no such operation.
    """
    if a.dtype is torch.float32:
        # a product of float32 numbers is exact in float64
        return torch.addcmul(c.double(), a.double(), b.double()).float()
    product = a * b
    (a_high, a_low), (b_high, b_low) = _halves(a), _halves(b)
    product_error = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low
    total = product + c
    shift = total - product
    sum_error = (product - (total - shift)) + (c - shift)
    return total + (sum_error + product_error)


def _halves(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return float64 numbers of 26 bits each whose sum is x (Veltkamp; Dekker 1971)."""
    scaled = x * 134217729.0
    high = scaled - (scaled - x)
    return high, x - high
