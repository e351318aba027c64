"""The gradient of an iterative solve: one more solve with the same matrix."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tensormesh.distributed.layout import MatrixLayout

# Solves with given entries and right-hand side, without gradients.
Solver = Callable[[Tensor, Tensor], Tensor]


def differentiable_solve(layout: MatrixLayout, values: Tensor, b: Tensor, solver: Solver) -> Tensor:
    """Solution of ``A x = b`` for a Hermitian ``A``, differentiable to any order. **Collective.**

    The gradient stays sharded: with ``g`` that of ``x``, ``A y = g`` is solved by the same solver;
    then ``y`` is the gradient of ``b``, and ``-y_i conj(x_j)`` that of each stored entry.

    Parameters
    ----------
    layout
        Layout of the matrix.
    values
        Its entries on this rank, ``[nnz]``.
    b
        Owned slice of the right-hand side, ``[n_owned]``, in the same dtype.
    solver
        Solves without gradients. **Collective**, in forward and in backward.

    Returns
    -------
    Tensor
        Owned slice of the solution, ``[n_owned]``.

    References
    ----------
    M. B. Giles, Collected matrix derivative results for forward and reverse mode algorithmic
    differentiation, 2008, section 2.3.1.
    """
    x: Tensor = _Solve.apply(values, b, layout, solver)
    return x


class _Solve(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, values: Tensor, b: Tensor, layout: MatrixLayout, solver: Solver
    ) -> Tensor:
        x = solver(values.detach(), b.detach())
        ctx.save_for_backward(values, x)
        ctx.layout, ctx.solver = layout, solver
        return x

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        values, x = ctx.saved_tensors
        layout: MatrixLayout = ctx.layout
        y = _Solve.apply(values, grads[0], layout, ctx.solver)
        of_values = None
        if ctx.needs_input_grad[0]:
            pattern = layout.pattern
            of_values = -y[pattern.row] * layout.with_ghosts(x)[pattern.col].conj()
        return of_values, y if ctx.needs_input_grad[1] else None, None, None
