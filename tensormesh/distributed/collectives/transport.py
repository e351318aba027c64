"""What all collectives need: the group, the device of small messages, and errors with names."""

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor

from tensormesh.distributed.device_mesh import DeviceMesh

MAX_ELEMENTS = 2**31 - 1  # of one message: counts are 32-bit integers in some transports

# What both gloo and NCCL carry; anything else travels as bytes.
_WIRE_DTYPES = frozenset(
    {torch.uint8, torch.int32, torch.int64, torch.float16, torch.float32, torch.float64}
)


class CollectiveError(RuntimeError):
    """A collective failed or timed out; names the operation, the group and the rank."""


def line_group(device_mesh: DeviceMesh) -> dist.ProcessGroup | None:
    """Group of a 1-D device mesh; None if it holds this rank alone.

    Raises
    ------
    ValueError
        If the mesh is not 1-D.
    RuntimeError
        On a rank outside the mesh, or without a process group on a mesh of several ranks.
    """
    if device_mesh.ndim != 1:
        raise ValueError(f"device_mesh = {device_mesh!r} is not 1-D: pass one of its dimensions")
    if device_mesh.size() == 1:
        device_mesh.get_local_rank()  # raises on a rank outside
        return None
    return device_mesh.get_group()


@contextmanager
def naming(operation: str, device_mesh: DeviceMesh) -> Iterator[None]:
    """Turn a failure of the transport, time-outs included, into one that says where it was."""
    try:
        yield
    except RuntimeError as error:
        raise CollectiveError(
            f"{operation} failed on rank {device_mesh.get_rank()}, in the group of "
            f"{device_mesh!r} with the ranks {device_mesh.mesh.tolist()}: {error}"
        ) from error


def control_device(device_mesh: DeviceMesh) -> torch.device:
    """Device for small messages that are read on the host: the CPU if the group carries it."""
    group = line_group(device_mesh)
    if group is None or torch.device("cpu") in group._device_types:
        return torch.device("cpu")
    return device_mesh.device


def as_wire_rows(x: Tensor) -> Tensor:
    """View of a contiguous tensor as rows of a type that every transport carries."""
    n = x.shape[0]
    # A tensor of one column counts as contiguous whatever its strides; bytes want them to be plain.
    rows = x.detach().as_strided((n, math.prod(x.shape[1:])), (math.prod(x.shape[1:]), 1))
    return rows if x.dtype in _WIRE_DTYPES else rows.view(torch.uint8)


def rows_per_message(rows: Tensor) -> int:
    """Return the number of rows that one message may hold."""
    return max(1, MAX_ELEMENTS // max(1, rows.shape[1]))
