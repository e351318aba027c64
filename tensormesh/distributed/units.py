"""Powers of two in which the numbers of a system have squares that do not over- or underflow."""

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from tensormesh.distributed.collectives import all_gather_ints
from tensormesh.distributed.device_mesh import DeviceMesh
from tensormesh.sparse.krylov.solution import Array


def unit_exponents(tensors: Sequence[Tensor], device_mesh: DeviceMesh) -> list[int]:
    """Exponent ``e`` of a unit ``2**e`` for each tensor. **Collective over `device_mesh`.**

    Zero, that is no unit at all, unless the largest entry over all ranks is so large or small that
    norms of such entries would be lost: beyond the fourth root of what the dtype can hold.
    """
    mine = [_exponent(x) for x in tensors]
    largest = all_gather_ints(mine, device_mesh).amax(0).tolist()
    return [
        e if abs(e) > _range(x) // 4 and e > -_NOTHING else 0
        for e, x in zip(largest, tensors, strict=True)
    ]


def times_power(x: Tensor, exponents: int | Array) -> Tensor:
    """``x * 2**exponent``, exact, with one exponent or with one for each column.

    In two steps, as the power itself may not be a number of the dtype.
    """
    if not np.any(exponents):
        return x
    whole = np.asarray(exponents)
    for part in (whole // 2, whole - whole // 2):
        x = x * torch.as_tensor(np.ldexp(1.0, part)).to(x.device, x.real.dtype)
    return x


_NOTHING = 10_000  # less than the exponent of any number


def _exponent(x: Tensor) -> int:
    largest = float(torch.linalg.vector_norm(x.detach(), math.inf)) if x.numel() else 0.0
    return math.frexp(largest)[1] if largest else -_NOTHING


def _range(x: Tensor) -> int:
    return int(math.log2(torch.finfo(x.dtype).max))
