"""Nonlinear equations around one matrix, ``F(u, A, ...) = 0``."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tensormesh.sparse.equations import misfit
from tensormesh.sparse.newton import newton


def nonlinear_solve(
    A: Any,
    residual: Callable[..., Tensor],
    u0: Tensor,
    params: tuple[Any, ...],
    jac_fn: Callable[..., Any],
    tol: float,
    atol: float,
    max_iter: int,
    line_search: bool,
) -> Tensor:
    """Solve ``residual(u, A, *params) = 0``; see `SparseMatrix.nonlinear_solve`."""
    if A.values.is_complex():
        raise TypeError("nonlinear_solve works on real numbers: split real and imaginary parts")

    def forces(u: Tensor, values: Tensor, *rest: Any) -> Tensor:
        return residual(u, A._with_values(values), *rest)

    def tangent(u: Tensor, values: Tensor, *rest: Any) -> Any:
        given = jac_fn(u, A._with_values(values), *rest)
        return type(A)(*given) if isinstance(given, tuple) else given

    u: Tensor = newton(
        forces,
        tangent,
        u0,
        (A.values, *params),
        rtol=tol,
        atol=atol,
        max_iter=max_iter,
        line_search=line_search,
    )
    return u


def dense_jacobian(make: Any, residual: Callable[..., Tensor]) -> Callable[..., Any]:
    """``dF/du`` by automatic differentiation of the whole residual: for small systems."""

    def jac_fn(u: Tensor, A: Any, *params: Any) -> Any:
        def of(u: Tensor) -> Tensor:
            value = residual(u, A, *params)
            error = misfit(value, u)
            if error is not None:
                raise error
            return value

        return make.from_dense(torch.autograd.functional.jacobian(of, u))

    return jac_fn
