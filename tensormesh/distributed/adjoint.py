"""The gradient of an iterative solve: one more solve, with the conjugate transpose."""

from typing import Any, Protocol

import torch
from torch import Tensor

from tensormesh.distributed.layout import MatrixLayout


class Solver(Protocol):
    """A way to solve for numbers, without gradients. **Collective.**"""

    def __call__(self, values: Tensor, b: Tensor, transposed: bool) -> Tensor:
        """Solution of ``A x = b``, or of ``A.T x = b``, for these entries of ``A``."""


def differentiable_solve(
    layout: MatrixLayout, values: Tensor, b: Tensor, transposed: bool, solver: Solver
) -> Tensor:
    """Solution of ``A x = b`` or ``A.T x = b``, differentiable to any order. **Collective.**

    The gradient stays sharded: with ``g`` that of ``x``, ``A^H y = g`` is solved by the same
    solver; then ``y`` is the gradient of ``b``, and ``-y_i conj(x_j)`` that of each stored entry.

    Parameters
    ----------
    layout
        Layout of the matrix ``A``.
    values
        Its entries on this rank, ``[nnz]``.
    b
        Owned slice of the right-hand side, ``[n_owned]`` or ``[n_owned, k]``, in the same dtype.
    transposed
        Whether to solve with the transpose.
    solver
        Solves without gradients, in forward and in backward.

    Returns
    -------
    Tensor
        Owned slice of the solution, in the shape of `b`.

    References
    ----------
    M. B. Giles, Collected matrix derivative results for forward and reverse mode algorithmic
    differentiation, 2008, section 2.3.1.
    """
    x: Tensor = _Solve.apply(values, b, layout, transposed, solver)
    return x


class _Solve(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        values: Tensor,
        b: Tensor,
        layout: MatrixLayout,
        transposed: bool,
        solver: Solver,
    ) -> Tensor:
        x = solver(values.detach(), b.detach(), transposed)
        ctx.save_for_backward(values, x)
        ctx.layout, ctx.transposed, ctx.solver = layout, transposed, solver
        return x

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None, None, None, None]:
        values, x = ctx.saved_tensors
        layout: MatrixLayout = ctx.layout
        y = _Solve.apply(values.conj(), grads[0], layout, not ctx.transposed, ctx.solver)
        of_values = None
        if ctx.needs_input_grad[0]:
            rows, columns = (x.conj(), y) if ctx.transposed else (y, x.conj())
            pattern = layout.pattern
            of_values = -rows[pattern.row] * layout.with_ghosts(columns)[pattern.col]
            of_values = of_values if of_values.dim() == 1 else of_values.sum(1)
        return of_values, y if ctx.needs_input_grad[1] else None, None, None, None
