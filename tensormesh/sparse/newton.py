"""Newton's method for ``F(u, A, ...) = 0``, with the derivative of its solution."""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tensormesh.errors import NotConvergedError
from tensormesh.sparse.adjoint import only_first_derivative
from tensormesh.sparse.direct import direct_solve

if TYPE_CHECKING:
    from tensormesh.sparse.matrix import SparseMatrix

logger = logging.getLogger(__name__)

Residual = Callable[..., Tensor]
# An accepted step lowers the residual by at least this share of what a full one promises.
_ARMIJO = 1e-4
_MOST_HALVINGS = 20


def newton(
    A: "SparseMatrix",
    residual: Residual,
    u0: Tensor,
    params: tuple[Any, ...],
    jac_fn: Callable[..., Any] | None,
    tol: float,
    atol: float,
    max_iter: int,
    line_search: bool,
) -> Tensor:
    """Solve ``residual(u, A, *params) = 0``; see `SparseMatrix.nonlinear_solve`."""
    if u0.dim() != 1:
        raise ValueError(f"u0 must be 1-D, got shape {tuple(u0.shape)}")
    if u0.is_complex() or A.values.is_complex():
        raise TypeError("nonlinear_solve works on real numbers: split real and imaginary parts")
    if max_iter < 1:
        raise ValueError(f"max_iter must be at least 1, got {max_iter}")

    def iterate(values: Tensor, *rest: Any) -> Tensor:
        system = _System(A._with_values(values), residual, jac_fn, rest)
        return system.solve(u0.detach(), tol, atol, max_iter, line_search)

    def at(u: Tensor, values: Tensor, *rest: Any) -> "_System":
        return _System(A._with_values(values), residual, jac_fn, rest)

    solution: Tensor = _Implicit.apply(iterate, at, A.values, *params)
    return solution


class _System:
    """The equation for one matrix and one set of parameters."""

    def __init__(
        self,
        A: "SparseMatrix",
        residual: Residual,
        jac_fn: Callable[..., Any] | None,
        params: tuple[Any, ...],
    ) -> None:
        self._A, self._residual, self._jac_fn, self._params = A, residual, jac_fn, params

    def residual(self, u: Tensor) -> Tensor:
        """``F(u)``, ``[n]``."""
        value = self._residual(u, self._A, *self._params)
        if not isinstance(value, Tensor) or value.shape != u.shape:
            raise ValueError(
                f"the residual must be a tensor of the shape of u0, {tuple(u.shape)}, got "
                f"{getattr(value, 'shape', type(value).__name__)}"
            )
        return value

    def jacobian(self, u: Tensor) -> "SparseMatrix":
        """``dF/du``: by `jac_fn`, else dense by automatic differentiation."""
        make = type(self._A)
        if self._jac_fn is None:
            dense = torch.autograd.functional.jacobian(self.residual, u)
            return make.from_dense(dense)
        given = self._jac_fn(u, self._A, *self._params)
        return given if isinstance(given, make) else make(*given)

    def solve(self, u: Tensor, tol: float, atol: float, max_iter: int, line_search: bool) -> Tensor:
        """Newton's iteration from `u`; each step is halved until the residual shrinks."""
        f = self.residual(u).detach()
        first = size = float(f.norm())
        for number in range(max_iter):
            if size <= max(atol, tol * first):
                logger.info("newton: %d iterations, residual %.3e", number, size)
                return u
            jacobian = self.jacobian(u)
            step = direct_solve(jacobian.pattern, jacobian.values.detach(), -f)
            u, f, size = self._advance(u, step, size, line_search)
        if size <= max(atol, tol * first):
            return u
        raise NotConvergedError(
            f"newton stopped after {max_iter} iterations at |F| = {size:.3e} (from {first:.3e}; "
            f"tol = {tol:g}, atol = {atol:g}): start nearer to the solution, raise max_iter, or "
            "check jac_fn against finite differences"
        )

    def _advance(
        self, u: Tensor, step: Tensor, size: float, line_search: bool
    ) -> tuple[Tensor, Tensor, float]:
        length = 1.0
        for _ in range(_MOST_HALVINGS):
            trial = u + length * step
            f = self.residual(trial).detach()
            after = float(f.norm())
            if not line_search or after <= (1 - _ARMIJO * length) * size:
                return trial, f, after
            length /= 2
        raise NotConvergedError(
            f"newton: no step along its direction lowers |F| = {size:.3e}: the tolerance is below "
            "rounding, or jac_fn is not the derivative of the residual"
        )


class _Implicit(torch.autograd.Function):
    """Implicit function theorem: ``du = -J^-1 dF``, by one adjoint solve."""

    @staticmethod
    def forward(ctx: Any, iterate: Any, at: Any, values: Tensor, *params: Any) -> Tensor:
        u: Tensor = iterate(values, *params)
        ctx.at = at
        ctx.others = [None if isinstance(p, Tensor) else p for p in params]
        ctx.is_tensor = [isinstance(p, Tensor) for p in params]
        ctx.save_for_backward(u, values, *(p for p in params if isinstance(p, Tensor)))
        return u

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        u, values, *tensors = ctx.saved_tensors
        queue = iter(tensors)
        params = [next(queue) if t else p for t, p in zip(ctx.is_tensor, ctx.others, strict=True)]
        inputs = [
            x.detach().requires_grad_(need) if isinstance(x, Tensor) else x
            for x, need in zip((values, *params), ctx.needs_input_grad[2:], strict=True)
        ]
        with torch.enable_grad():
            system = ctx.at(u, *inputs)
            jacobian = system.jacobian(u)
            f = system.residual(u)
            wanted = [x for x in inputs if isinstance(x, Tensor) and x.requires_grad]
            transposed = jacobian.pattern.transpose
            adjoint = direct_solve(transposed, jacobian.values.detach(), grad.detach())
            found = iter(torch.autograd.grad(f, wanted, -adjoint, allow_unused=True))
        origins = (grad, values, *tensors)
        grads: list[Tensor | None] = []
        for x in inputs:
            one = next(found) if isinstance(x, Tensor) and x.requires_grad else None
            grads.append(None if one is None else only_first_derivative(one.detach(), *origins))
        return (None, None, *grads)
