"""Sums of element tensors, block by block."""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from tensormesh.assemble.integrand import FormError


def scatter(n: int, pieces: Iterable[tuple[Tensor, Tensor]]) -> Tensor:
    """Sum element tensors at their places.

    Parameters
    ----------
    n
        Number of places.
    pieces
        Pairs of places, an integer ``[R, E]``, and element tensors ``[R, k, E]``. They are consumed
        one by one: without gradients, one block exists at a time.

    Returns
    -------
    Tensor
        ``[k, n]``.

    Raises
    ------
    ValueError
        If there is no piece.
    FormError
        If the pieces differ in ``k`` or in dtype.
    """
    total: Tensor | None = None
    with_gradient: list[tuple[Tensor, Tensor]] = []
    for places, tensors in pieces:
        if total is None:
            total = torch.zeros(tensors.shape[1], n, dtype=tensors.dtype, device=tensors.device)
        if (total.dtype, total.shape[0]) != (tensors.dtype, tensors.shape[1]):
            raise FormError(
                f"the form gives {total.dtype} with {total.shape[0]} components on some cells and "
                f"{tensors.dtype} with {tensors.shape[1]} on others"
            )
        if tensors.requires_grad:
            with_gradient.append((places, tensors))
        else:
            _add(total, places, tensors)
    if total is None:
        raise ValueError("the mesh has no cells")
    if not with_gradient:
        return total
    where = [places for places, _ in with_gradient]
    summed: Tensor = _Scatter.apply(total, where, *(tensors for _, tensors in with_gradient))
    return total + summed


def _add(total: Tensor, places: Tensor, tensors: Tensor) -> None:
    flat = places.reshape(-1)
    for component, row in enumerate(total):
        row.index_add_(0, flat, tensors[:, component].reshape(-1))


class _Scatter(torch.autograd.Function):
    """Sum of all pieces; the gradient of a piece is that of its places."""

    @staticmethod
    def forward(ctx: Any, like: Tensor, places: Sequence[Tensor], *tensors: Tensor) -> Tensor:
        ctx.places = places
        total = torch.zeros_like(like)
        for where, piece in zip(places, tensors, strict=True):
            _add(total, where, piece)
        return total

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (grad,) = grads
        pieces = [grad[:, where.long()].movedim(0, 1) for where in ctx.places]
        return (None, None, *pieces)
