"""The derivative of a solve is another solve: one function for every way to solve."""

from typing import Any, Protocol

import torch
from torch import Tensor

from tensormesh.sparse.pattern import SparsityPattern


class Solver(Protocol):
    """A way to solve ``A x = b`` for numbers, without derivatives."""

    @property
    def adjoint(self) -> "Solver":
        """How to solve with the conjugate transpose."""

    def __call__(self, pattern: SparsityPattern, values: Tensor, b: Tensor) -> Tensor:
        """``x`` in the shape, dtype and on the device of `b`."""


def differentiable_solve(
    solver: Solver, pattern: SparsityPattern, values: Tensor, b: Tensor
) -> Tensor:
    """Solve ``A x = b``, differentiable in the values and in `b` to any order.

    Parameters
    ----------
    solver
        How.
    pattern
        Positions of the entries of a square ``A``.
    values
        Entries ``[nnz]``.
    b
        ``[n]`` or ``[n, k]``; promoted to the common dtype.

    Returns
    -------
    Tensor
        ``x`` in the shape of `b`.

    Raises
    ------
    ValueError
        If the matrix is not square or `b` has another length.
    TypeError
        If neither has floating-point entries.

    Notes
    -----
    The adjoint is ``dL/db = A^-H g``, ``dL/dA_ij = -(A^-H g)_i conj(x_j)`` on the pattern.
    """
    n_rows, n_cols = pattern.shape
    if n_rows != n_cols:
        raise ValueError(f"solve needs a square matrix, got shape {pattern.shape}")
    if b.dim() not in (1, 2) or b.shape[0] != n_rows:
        raise ValueError(f"b has shape {tuple(b.shape)}; expected [{n_rows}] or [{n_rows}, k]")
    dtype = torch.promote_types(values.dtype, b.dtype)
    if not (dtype.is_floating_point or dtype.is_complex):
        raise TypeError(f"solve needs floating-point entries, got {values.dtype} and {b.dtype}")
    x: Tensor = _Solve.apply(values.to(dtype), b.to(dtype), pattern, solver)
    return x


class _Solve(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, values: Tensor, b: Tensor, pattern: SparsityPattern, solver: Solver
    ) -> Tensor:
        x = solver(pattern, values, b)
        ctx.save_for_backward(values, x)
        ctx.pattern, ctx.solver = pattern, solver
        return x

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        values, x = ctx.saved_tensors
        pattern: SparsityPattern = ctx.pattern
        adjoint = _Solve.apply(values.conj(), grads[0], pattern.transpose, ctx.solver.adjoint)
        grad_values = None
        if ctx.needs_input_grad[0]:
            terms = -adjoint[pattern.row] * x[pattern.col].conj()
            grad_values = terms if terms.dim() == 1 else terms.sum(1)
        return grad_values, adjoint if ctx.needs_input_grad[1] else None, None, None


def only_first_derivative(grad: Tensor, *origins: Tensor) -> Tensor:
    """`grad`, a first derivative at `origins`, which refuses to be differentiated in silence."""
    result: Tensor = _OnlyFirst.apply(grad, *origins)
    return result


class _OnlyFirst(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, grad: Tensor, *origins: Tensor) -> Tensor:
        return grad.view_as(grad)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        raise NotImplementedError(
            "eigsh and nonlinear_solve have first derivatives only: compute second ones by finite "
            "differences of the gradient"
        )
