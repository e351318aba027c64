"""Sums over the ranks, and the passage from replicated to sharded work that is their adjoint."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from tensormesh.distributed.collectives import transport
from tensormesh.distributed.device_mesh import DeviceMesh


def all_reduce_sum(x: Tensor, device_mesh: DeviceMesh) -> Tensor:
    """Sum of the ranks' parts, the same on every rank. Collective over `device_mesh`.

    Differentiable any number of times: each part gets the (replicated) gradient of the sum.

    Parameters
    ----------
    x
        This rank's part, of the same shape and dtype on all ranks; not boolean.

    Raises
    ------
    TypeError
        If `x` is boolean.
    """
    if x.dtype == torch.bool:
        raise TypeError("x is boolean, which has no sum: convert it to an integer type")
    if not torch.is_grad_enabled():
        return _summed(x, device_mesh)  # the way through autograd takes longer than the message
    return _Sum.apply(x, device_mesh)


def replicated(x: Tensor, device_mesh: DeviceMesh) -> Tensor:
    """`x` itself, a tensor that is the same on all ranks, at its entry into sharded work.

    Nothing is sent. Its backward sums the ranks' gradients, so that the gradient of `x` is
    complete, and the same on every rank; that is collective over `device_mesh`.
    """
    return _Replicated.apply(x, device_mesh)


def all_min(value: int, device_mesh: DeviceMesh) -> int:
    """Smallest of the ranks' integers. Collective over `device_mesh`."""
    return _reduce_int(value, dist.ReduceOp.MIN, device_mesh)


def all_max(value: int, device_mesh: DeviceMesh) -> int:
    """Largest of the ranks' integers. Collective over `device_mesh`."""
    return _reduce_int(value, dist.ReduceOp.MAX, device_mesh)


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(x: Tensor, device_mesh: DeviceMesh) -> Tensor:
        return _summed(x.detach(), device_mesh)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, DeviceMesh], output: Tensor) -> None:
        _, ctx.device_mesh = inputs

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return replicated(gradients[0], ctx.device_mesh), None


class _Replicated(torch.autograd.Function):
    @staticmethod
    def forward(x: Tensor, device_mesh: DeviceMesh) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, DeviceMesh], output: Tensor) -> None:
        _, ctx.device_mesh = inputs

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return all_reduce_sum(gradients[0], ctx.device_mesh), None


def _summed(x: Tensor, device_mesh: DeviceMesh) -> Tensor:
    total = x.clone(memory_format=torch.contiguous_format)
    _reduce_(total, dist.ReduceOp.SUM, device_mesh)
    return total


def _reduce_int(value: int, op: Any, device_mesh: DeviceMesh) -> int:
    device = transport.control_device(device_mesh)
    number = torch.tensor(value, dtype=torch.int64, device=device)
    _reduce_(number, op, device_mesh)
    return int(number)


def _reduce_(x: Tensor, op: Any, device_mesh: DeviceMesh) -> None:
    """Reduce a contiguous tensor in place."""
    group = transport.line_group(device_mesh)
    if group is None:
        return
    with transport.naming("all_reduce", device_mesh):
        for piece in x.view(-1).split(transport.MAX_ELEMENTS):
            dist.all_reduce(piece, op=op, group=group)
