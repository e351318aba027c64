"""Sums over the ranks, and the passage from replicated to sharded work that is their adjoint."""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from tensormesh.distributed.collectives import transport
from tensormesh.distributed.device_mesh import DeviceMesh

# Up to this many numbers of all ranks together, waiting costs more than sending.
_FEW = 1 << 12
_REDUCTIONS: dict[Any, Callable[[Tensor], Tensor]] = {
    dist.ReduceOp.SUM: lambda of_ranks: of_ranks.sum(0, dtype=of_ranks.dtype),
    dist.ReduceOp.MIN: lambda of_ranks: of_ranks.amin(0),
    dist.ReduceOp.MAX: lambda of_ranks: of_ranks.amax(0),
}


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
    if x.device.type == "cpu" and x.numel() * device_mesh.size() <= _FEW:
        _reduce_few_(x, op, device_mesh)
        return
    with transport.naming("all_reduce", device_mesh):
        for piece in x.view(-1).split(transport.MAX_ELEMENTS):
            dist.all_reduce(piece, op=op, group=group)


def _reduce_few_(x: Tensor, op: Any, device_mesh: DeviceMesh) -> None:
    """Reduce a few numbers: each rank gets those of all at once, and reduces in their order.

    Gloo reduces in a ring, which waits for ``2 (size - 1)`` messages, one after the other.
    """
    size = device_mesh.size()
    of_ranks = x.new_empty(size, x.numel())
    sent = transport.as_wire_rows(x.view(1, -1).repeat(size, 1))
    with transport.naming("all_reduce", device_mesh):
        dist.all_to_all_single(
            transport.as_wire_rows(of_ranks), sent, group=device_mesh.get_group()
        )
    x.copy_(_REDUCTIONS[op](of_ranks).view(x.shape))
