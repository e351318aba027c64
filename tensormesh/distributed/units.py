"""Units of the numbers of a sharded system."""

from collections.abc import Sequence

from torch import Tensor

from tensormesh.distributed.collectives import all_gather_ints
from tensormesh.distributed.device_mesh import DeviceMesh
from tensormesh.sparse.units import largest_exponent, unit_exponent


def unit_exponents(tensors: Sequence[Tensor], device_mesh: DeviceMesh) -> list[int]:
    """Exponent of the unit of each tensor, by `unit_exponent`. **Collective over the mesh.**"""
    mine = [largest_exponent(x) for x in tensors]
    largest = all_gather_ints(mine, device_mesh).amax(0).tolist()
    return [unit_exponent(x, e) for e, x in zip(largest, tensors, strict=True)]
