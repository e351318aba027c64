"""The derivative of the solution of nonlinear equations, by the implicit function theorem."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from tensormesh.sparse.adjoint import only_first_derivative
from tensormesh.sparse.equations import Equations


def implicit(
    run: Callable[[Tensor | None], Tensor],
    equations: Callable[[Sequence[Any]], Equations],
    prescribed: Tensor | None,
    params: Sequence[Any],
) -> Tensor:
    """Solution of equations, differentiable in the prescribed values and in tensors of `params`.

    With ``K = dF/du`` at the solution and ``K_ii^T y_i = g_i`` for a gradient ``g``, the gradient
    of a parameter is ``-y^T dF/dp`` and that of prescribed values ``g_o - (K^T y)_o``.

    Parameters
    ----------
    run
        From the prescribed values to the solution, without derivatives.
    equations
        From parameters to the equations.
    prescribed
        Full vector of prescribed values, or None.
    params
        Parameters.
    """
    solution: Tensor = _Implicit.apply(run, equations, prescribed, *params)
    return solution


class _Implicit(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, run: Any, equations: Any, prescribed: Any, *params: Any) -> Tensor:
        u: Tensor = run(None if prescribed is None else prescribed.detach())
        ctx.equations = equations
        ctx.others = [None if isinstance(p, Tensor) else p for p in params]
        ctx.is_tensor = [isinstance(p, Tensor) for p in params]
        ctx.save_for_backward(u, *(p for p in params if isinstance(p, Tensor)))
        return u

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        u, *tensors = ctx.saved_tensors
        queue = iter(tensors)
        inputs = [
            next(queue).detach().requires_grad_(need) if is_tensor else other
            for is_tensor, other, need in zip(
                ctx.is_tensor, ctx.others, ctx.needs_input_grad[3:], strict=True
            )
        ]
        wanted = [x for x in inputs if isinstance(x, Tensor) and x.requires_grad]
        equations: Equations = ctx.equations(inputs)
        with torch.no_grad():
            equations.linearize(u)
        adjoint = equations.adjoint(grad.detach())
        found = iter(_by_params(equations, u, wanted, adjoint))
        origins = (grad, *tensors)
        grads = [
            _first(next(found), origins) if isinstance(x, Tensor) and x.requires_grad else None
            for x in inputs
        ]
        of_prescribed = None
        if ctx.needs_input_grad[2]:
            of_prescribed = _first(grad - equations.transposed_force_of(adjoint), origins)
        return (None, None, of_prescribed, *grads)


def _by_params(
    equations: Equations, u: Tensor, wanted: list[Tensor], adjoint: Tensor
) -> Sequence[Tensor | None]:
    if not wanted:
        return []
    with torch.enable_grad():
        f = equations.forces(u)
        return torch.autograd.grad(f, wanted, -adjoint, allow_unused=True)


def _first(grad: Tensor | None, origins: tuple[Tensor, ...]) -> Tensor | None:
    return None if grad is None else only_first_derivative(grad.detach(), *origins)
