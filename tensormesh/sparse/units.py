"""Powers of two in which the numbers of a system have squares that do not over- or underflow."""

import math

import numpy as np
import torch
from torch import Tensor

from tensormesh.sparse.krylov.solution import Array

_NOTHING = 10_000  # less than the exponent of any number


def all_finite(x: Tensor) -> bool:
    """Whether no entry is NaN or infinite, without the copies that `torch.isfinite` makes."""
    return not x.numel() or bool(_range(x).isfinite().all())


def largest_exponent(x: Tensor) -> int:
    """Exponent of two of the largest number in `x`; far below all of them if there is none."""
    largest = float(_range(x).abs().max()) if x.numel() else 0.0
    return math.frexp(largest)[1] if largest else -_NOTHING


def _range(x: Tensor) -> Tensor:
    """Smallest and largest number, of complex ones a part; NaN where one is NaN."""
    x = x.detach().resolve_conj()
    return torch.stack(torch.aminmax(torch.view_as_real(x) if x.is_complex() else x))


def unit_exponent(x: Tensor, largest: int) -> int:
    """Exponent ``e`` of a unit ``2**e`` for numbers like `x` up to ``2**largest``.

    Zero, that is no unit at all, unless the largest is so large or small that norms of such numbers
    would be lost: beyond the fourth root of what the dtype can hold.
    """
    holds = int(math.log2(torch.finfo(x.dtype).max))
    return largest if abs(largest) > holds // 4 and largest > -_NOTHING else 0


def times_power(x: Tensor, exponents: int | Array) -> Tensor:
    """``x * 2**exponent``, exact, with one exponent or with one for each column.

    In two steps, as the power itself may not be a number of the dtype.
    """
    if not np.any(exponents):
        return x
    whole = np.asarray(exponents)
    for part in (whole // 2, whole - whole // 2):
        x = x * torch.as_tensor(np.ldexp(1.0, part), dtype=x.real.dtype, device=x.device)
    return x
