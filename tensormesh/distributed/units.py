"""Powers of two in which the numbers of a system have squares that do not over- or underflow."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from tensormesh.distributed.collectives import all_gather_ints
from tensormesh.distributed.device_mesh import DeviceMesh


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


def times_power(x: Tensor, exponent: int) -> Tensor:
    """``x * 2**exponent``, exact; in two steps, as the power itself may not be a number of `x`."""
    half = exponent // 2
    return x * 2.0**half * 2.0 ** (exponent - half) if exponent else x


_NOTHING = 10_000  # less than the exponent of any number


def _exponent(x: Tensor) -> int:
    largest = float(torch.linalg.vector_norm(x.detach(), math.inf)) if x.numel() else 0.0
    return math.frexp(largest)[1] if largest else -_NOTHING


def _range(x: Tensor) -> int:
    return int(math.log2(torch.finfo(x.dtype).max))
