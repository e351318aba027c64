"""Rows or numbers of all ranks, on every rank."""

import math
import zlib
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from tensormesh.distributed.collectives import transport
from tensormesh.distributed.device_mesh import DeviceMesh


def all_gather_ints(values: Sequence[int], device_mesh: DeviceMesh) -> Tensor:
    """Integers of all ranks, int64 ``(size, k)`` on the CPU. Collective over `device_mesh`.

    Parameters
    ----------
    values
        k integers, as many on every rank.
    """
    device = transport.control_device(device_mesh)
    mine = torch.tensor([list(values)], dtype=torch.int64, device=device)
    return _gather(mine, [1] * device_mesh.size(), device_mesh).cpu()


def all_gather_rows(x: Tensor, device_mesh: DeviceMesh) -> Tensor:
    """Rows of all ranks in rank order, the same on every rank. Collective over `device_mesh`.

    Differentiable any number of times: each rank's rows get their slice of the (replicated)
    gradient.

    Parameters
    ----------
    x
        Rows ``(n, ...)``. The number n may differ between ranks and be 0; dtype and trailing
        dimensions may not.

    Raises
    ------
    ValueError
        On every rank, if dtypes or trailing dimensions differ, or `x` is 0-dimensional somewhere.
    """
    kind = f"{x.dtype}, rows of shape {tuple(x.shape[1:])}" if x.ndim else "no rows"
    facts = all_gather_ints([len(x) if x.ndim else -1, zlib.crc32(kind.encode())], device_mesh)
    if (facts[:, 0] < 0).any() or (facts[:, 1] != facts[0, 1]).any():
        raise ValueError(
            f"x does not have rows of one dtype and shape on all ranks; here it is: {kind}"
        )
    return _Gather.apply(x, facts[:, 0].tolist(), device_mesh)


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(x: Tensor, counts: list[int], device_mesh: DeviceMesh) -> Tensor:
        return _gather(x, counts, device_mesh)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        _, ctx.counts, ctx.device_mesh = inputs

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return _OwnRows.apply(gradients[0], ctx.counts, ctx.device_mesh), None, None


class _OwnRows(torch.autograd.Function):
    """Own rows of a replicated tensor, the adjoint of the gather."""

    @staticmethod
    def forward(x: Tensor, counts: list[int], device_mesh: DeviceMesh) -> Tensor:
        me = device_mesh.get_local_rank()
        return x.detach().narrow(0, sum(counts[:me]), counts[me]).clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        _, ctx.counts, ctx.device_mesh = inputs

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return _Gather.apply(gradients[0], ctx.counts, ctx.device_mesh), None, None


def _gather(x: Tensor, counts: list[int], device_mesh: DeviceMesh) -> Tensor:
    """Gather rows whose counts are known, padded to the longest: gloo refuses uneven parts."""
    group = transport.line_group(device_mesh)
    if group is None:
        return x.detach().clone()
    longest = max(counts)
    padded = x.new_zeros(longest, *x.shape[1:])
    padded[: len(x)] = x.detach()
    parts = [torch.empty_like(padded) for _ in counts]
    mine, all_rows = transport.as_wire_rows(padded), [transport.as_wire_rows(p) for p in parts]
    step = transport.rows_per_message(mine)
    with transport.naming("all_gather", device_mesh):
        for start in range(0, longest if math.prod(x.shape[1:]) else 0, step):
            piece = slice(start, start + step)
            dist.all_gather([rows[piece] for rows in all_rows], mine[piece], group=group)
    return torch.cat([part[:count] for part, count in zip(parts, counts, strict=True)])
