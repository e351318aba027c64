"""Powers of two in which the numbers of a system have squares that do not over- or underflow."""

import math

import numpy as np
import torch
from torch import Tensor

from tensormesh.sparse.krylov.solution import Array

_NOTHING = 10_000  # less than the exponent of any number


def all_finite(x: Tensor) -> bool:
    """Whether no entry is NaN or infinite, without the copies that `torch.isfinite` makes."""
    x = x.detach().resolve_conj()
    numbers = torch.view_as_real(x) if x.is_complex() else x
    return not numbers.numel() or bool(torch.stack(torch.aminmax(numbers)).isfinite().all())


def largest_exponent(x: Tensor) -> int:
    """Exponent of two of the largest entry of `x`; far below all of them if there is none."""
    largest = float(torch.linalg.vector_norm(x.detach(), math.inf)) if x.numel() else 0.0
    return math.frexp(largest)[1] if largest else -_NOTHING


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
