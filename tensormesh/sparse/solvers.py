"""Systems that a `SparseMatrix` solves: linear, many of one pattern, nonlinear."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor

from tensormesh.sparse.factorized import Factorized
from tensormesh.sparse.krylov.solution import Callback
from tensormesh.sparse.nonlinear import dense_jacobian, nonlinear_solve
from tensormesh.sparse.pattern import SparsityPattern
from tensormesh.sparse.solve import solve
from tensormesh.sparse.solve_info import SolveInfo


class Solvers:
    """Solving with a `SparseMatrix`."""

    if TYPE_CHECKING:
        pattern: SparsityPattern
        values: Tensor
        shape: tuple[int, int]

        def _with_values(self, values: Tensor) -> Self: ...

    def solve(
        self,
        b: Tensor,
        backend: str = "auto",
        method: str = "auto",
        atol: float = 0.0,
        maxiter: int | None = None,
        tol: float | None = None,
        verbose: bool = False,
        *,
        rtol: float | None = None,
        preconditioner: Any = "auto",
        x0: Tensor | None = None,
        on_failure: str = "raise",
        return_info: bool = False,
        restart: int | None = None,
        callback: Callback | None = None,
        null_space: Tensor | str | None = None,
    ) -> Tensor | tuple[Tensor, SolveInfo]:
        """Solve ``A x = b``.

        Parameters
        ----------
        b
            ``[n]`` or ``[n, k]``.
        backend
            ``"scipy"`` (on the host), ``"pytorch"`` (iterative methods of torch-sla, where the
            matrix is), or ``"auto"``: the methods of sharded matrices, where the matrix is; for
            others scipy, if it has the method.
        method
            ``"lu"`` or ``"direct"``: direct. ``"cg"``, ``"minres"``, ``"gmres"``, ``"bicgstab"``,
            in each backend; ``"lgmres"`` and ``"qmr"`` of scipy, ``"lsqr"`` and ``"lsmr"`` of
            torch-sla. ``"auto"``: direct, or if `preconditioner`, `null_space`, `x0`, `callback`,
            `maxiter` or `restart` is given, the iterative method that fits the matrix: cg, and
            minres if it turns out to be indefinite, or gmres.
        atol, tol, maxiter
            An iterative method stops when ``|b - A x| <= max(tol |b|, atol)``, the residual
            computed anew, or after `maxiter` iterations, 10,000 by default. `tol` is 1e-10, and
            1e-8 if the result is in single precision; then too the iteration is in double
            precision, and its result is rounded.
        verbose
            Accepted for compatibility; the library logs.
        rtol
            Another name of `tol`.
        preconditioner
            Of an iterative method: ``"auto"``, ``"jacobi"``, ``"none"``, ``"multilevel"``
            (smoothed aggregation by pyamg, for real symmetric matrices), ``"schwarz"`` (of one
            part, the whole: such levels, or incomplete factors), or an object with ``M @ r`` and,
            to serve gradients of systems that are not Hermitian, a transpose ``T``. The last
            three, `restart`, `callback` and `null_space` are for ``backend="auto"``.
        x0
            First guess of an iterative method.
        on_failure
            ``"raise"``, ``"warn"`` or ``"return"`` when the tolerance is not reached.
        return_info
            Whether to return the `SolveInfo` too; of several columns, that of the worst.
        restart
            Iterations after which gmres begins anew, 50 by default.
        callback
            Called after each iteration with its number and the relative residual of the worst
            column, as the recurrence has it; never by a direct method.
        null_space
            What a Hermitian matrix maps to zero: independent vectors ``[n, m]``, or
            ``"constants"``, one for each component (of as many interleaved ones, up to three, as
            the matrix maps to zero). The part of `b` in it is removed; so is that of the solution,
            which is the shortest one.

        Returns
        -------
        x or (x, info)
            ``x`` in the shape of `b`, differentiable in `b` and in the values to any order.

        Raises
        ------
        SingularMatrixError
            If the direct method finds the matrix singular to rounding, a row is empty, or an
            iterative method meets a motion that is not held.
        NotConvergedError
            If the tolerance is not reached and `on_failure` is ``"raise"``.
        ValueError
            If a shape does not fit, or an argument has an unknown value.
        """
        x, info = solve(
            self.pattern,
            self.values,
            b,
            backend,
            method,
            atol,
            maxiter,
            tol,
            rtol=rtol,
            preconditioner=preconditioner,
            x0=x0,
            on_failure=on_failure,
            restart=restart,
            callback=callback,
            null_space=null_space,
        )
        return (x, info) if return_info else x

    def factorized(self) -> Factorized:
        """Factors of this matrix, for many right-hand sides: ``factorized().solve(b)``.

        Returns
        -------
        Factorized
            Solves like ``solve(b, method="direct")``; factored here.
        """
        return Factorized(self.pattern, self.values)

    def solve_batch(
        self,
        values: Tensor,
        b: Tensor,
        backend: str = "auto",
        method: str = "auto",
        atol: float = 0.0,
        maxiter: int | None = None,
        tol: float | None = None,
    ) -> Tensor:
        """Solve systems on this pattern: `values` ``[..., nnz]`` with `b` ``[..., n]``.

        Parameters
        ----------
        values
            Entries of each matrix; those of this one are not used.
        b
            Right-hand side of each.
        backend, method, atol, maxiter, tol
            As of `solve`.

        Returns
        -------
        Tensor
            ``[..., n]``, differentiable.

        Raises
        ------
        ValueError
            If the shapes do not fit.
        """
        nnz, n = self.pattern.nnz, self.shape[0]
        if values.shape[-1:] != (nnz,) or b.shape != (*values.shape[:-1], n):
            raise ValueError(
                f"values and b must have shapes [..., {nnz}] and [..., {n}], got "
                f"{tuple(values.shape)} and {tuple(b.shape)}"
            )
        solved = [
            solve(self.pattern, v, right, backend, method, atol, maxiter, tol)[0]
            for v, right in zip(values.reshape(-1, nnz), b.reshape(-1, n), strict=True)
        ]
        return torch.stack(solved).reshape(b.shape) if solved else b.clone()

    def nonlinear_solve(
        self,
        residual: Callable[..., Tensor],
        u0: Tensor,
        *params: Any,
        jac_fn: Callable[..., Any] | None = None,
        tol: float = 1e-8,
        atol: float = 1e-12,
        max_iter: int = 50,
        line_search: bool = True,
    ) -> Tensor:
        """Solve ``residual(u, A, *params) = 0`` for ``u`` by Newton's method.

        Parameters
        ----------
        residual
            From ``u`` ``[n]``, this matrix and `params` to ``[n]``.
        u0
            First guess ``[n]``.
        *params
            Further arguments; tensors among them get gradients.
        jac_fn
            With the same arguments, gives ``dF/du`` as a `SparseMatrix` or as
            ``(values, row, col, shape)``. None: a dense one by automatic differentiation, for
            small systems.
        tol, atol
            Stop when ``|F| <= max(atol, tol |F(u0)|)``.
        max_iter
            Bound of the iterations.
        line_search
            Whether to halve a step until it lowers the residual.

        Returns
        -------
        Tensor
            ``u`` ``[n]``, with first derivatives in the values and in `params`.

        Raises
        ------
        NotConvergedError
            If the tolerance is not reached.
        SingularMatrixError
            If a Jacobian is singular.
        ValueError
            If a tensor requires grad that `residual` uses and is not in `params`.
        """
        given = jac_fn or dense_jacobian(type(self), residual)
        return nonlinear_solve(self, residual, u0, params, given, tol, atol, max_iter, line_search)
