"""What torch-sla calls on a row-sharded tensor, answered in the group of its mesh, or refused."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch_sla.io import save_dsparse

from tensormesh.distributed.collectives import agree
from tensormesh.sparse.nonlinear import nonlinear_solve

if TYPE_CHECKING:
    from tensormesh.distributed.matrix import DSparseMatrix


def _refused(name: str, advice: str) -> Callable[..., Any]:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"{name} of a row-sharded matrix: {advice}")

    method.__name__ = name
    method.__doc__ = f"Refused: {advice}."
    return method


def _on_the_whole(name: str) -> Callable[..., Any]:
    advice = (
        "it needs the whole matrix; where that fits, gather it with to_single(), then use "
        "torch.linalg on to_dense() or scipy on to_scipy_coo()"
    )
    return _refused(name, advice)


class Engine:
    """torch-sla's functions of a `DSparseTensor`.

    torch-sla's own use the default group, return from an iteration that did not converge, or gather
    the whole matrix without being asked. A function here is right in the group of the mesh, or
    refuses with what to do.
    """

    def solve_distributed_shard(
        self: Any,
        b: Any,
        *,
        method: Any = None,
        preconditioner: Any = None,
        atol: float | None = None,
        rtol: float | None = None,
        maxiter: int | None = None,
        restart: Any = None,
        verbose: Any = None,
    ) -> Any:
        """Where ``torch_sla.solve`` ends up: `DSparseMatrix.solve`, which raises. **Collective.**

        Parameters
        ----------
        b
            Owned slice or `DTensor`.
        method, preconditioner, atol, rtol, maxiter
            As of `DSparseMatrix.solve`; None chooses. torch-sla's ``PreconditionerConfig`` is taken
            by its kind.
        restart
            As of `DSparseMatrix.solve`; None chooses.
        verbose
            Without effect: progress is logged.

        Returns
        -------
        Tensor or DTensor
            The solution, in the form of `b`.
        """
        kind = getattr(preconditioner, "kind", preconditioner)
        return self.solve(
            b,
            method="auto" if method is None else method,
            preconditioner="auto" if kind is None else kind,
            rtol=rtol,
            atol=0.0 if atol is None else atol,
            maxiter=maxiter,
            **({} if restart is None else {"restart": restart}),
        )

    def nonlinear_solve(
        self: Any,
        residual: Callable[..., Tensor],
        u0: Tensor,
        *params: Any,
        jac_fn: Callable[..., Any] | None = None,
        tol: float = 1e-8,
        atol: float = 1e-12,
        max_iter: int = 50,
        line_search: bool = True,
    ) -> Tensor:
        """Solve ``residual(u, A, *params) = 0`` by Newton's method. **Collective.**

        Parameters
        ----------
        residual, u0, *params, tol, atol, max_iter, line_search
            As of `SparseMatrix.nonlinear_solve`; vectors are owned slices.
        jac_fn
            With the arguments of `residual`, gives ``dF/du`` as a `DSparseMatrix`.

        Returns
        -------
        Tensor
            Owned slice of ``u``, with first derivatives in the values and in `params`.

        Raises
        ------
        ValueError
            If `jac_fn` is None: a dense Jacobian would have the size of the whole problem.
        SolveError
            As of `tensormesh.newton`.
        """
        if jac_fn is None:
            raise ValueError(
                "jac_fn is None: a dense Jacobian is not distributed; give the tangent as a "
                "DSparseMatrix, or solve to_single() on one device"
            )
        return nonlinear_solve(self, residual, u0, params, jac_fn, tol, atol, max_iter, line_search)

    def save(self: Any, directory: str | Path, verbose: bool = False) -> None:
        """Write one file a rank, as torch-sla's ``save_dsparse``. **Collective.**"""
        device_mesh = self.layout.device_mesh
        with agree(device_mesh):
            save_dsparse(self, directory, rank=device_mesh.get_local_rank(), verbose=verbose)

    def full_tensor(self: "DSparseMatrix") -> Any:  # type: ignore[misc]
        """Whole matrix on every rank: `to_single`. **Collective.**"""
        return self.to_single()

    def _shard_dot(self: Any, u: Tensor, v: Tensor) -> Tensor:
        total: Tensor = self.layout.vectors.dot(u, v)
        return total

    def _shard_matvec(self: Any, x_owned: Tensor) -> Tensor:
        product: Tensor = self @ x_owned
        return product

    def _shard_rmatvec(self: Any, y_owned: Tensor) -> Tensor:
        product: Tensor = self.T @ y_owned
        return product

    det = _on_the_whole("det")
    lu = _on_the_whole("lu")
    svd = _on_the_whole("svd")
    logdet = _on_the_whole("logdet")
    condition_number = _on_the_whole("condition_number")
    connected_components = _on_the_whole("connected_components")
    connected_components_distributed_shard = connected_components
    is_symmetric = _on_the_whole("is_symmetric")
    is_hermitian = _on_the_whole("is_hermitian")
    is_positive_definite = _on_the_whole("is_positive_definite")
    detect_matrix_type = _on_the_whole("detect_matrix_type")
    lsqr = _refused("lsqr", "least squares are not distributed; use solve, or to_single()")
    lsmr = _refused("lsmr", "least squares are not distributed; use solve, or to_single()")
    nonlinear_solve_distributed_shard = _refused(
        "nonlinear_solve_distributed_shard", "use nonlinear_solve, or tensormesh.newton"
    )
    solve_batch = _refused("solve_batch", "solve each right-hand side by itself")
    solve_batch_shard = solve_batch
    partition_batch = classmethod(
        _refused("partition_batch", "assemble one matrix a set of values instead")
    )
    from_global_distributed = classmethod(
        _refused("from_global_distributed", "wrap one of torch-sla: DSparseMatrix(dsparse_tensor)")
    )
