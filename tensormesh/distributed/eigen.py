"""Eigenvalues of row-sharded matrices: checks, start, iteration, and derivatives."""

from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tensormesh.distributed.collectives import agree, all_reduce_sum, raise_together
from tensormesh.distributed.forms import refuse_different
from tensormesh.distributed.layout import MatrixLayout
from tensormesh.distributed.preconditioner import Preconditioner, preconditioner_named
from tensormesh.distributed.product import ShardedProduct
from tensormesh.distributed.system import System
from tensormesh.errors import NotConvergedError
from tensormesh.sparse.eigen import gradients_of_entries, outer
from tensormesh.sparse.krylov import lobpcg
from tensormesh.sparse.krylov.choice import PRECONDITIONERS
from tensormesh.sparse.krylov.lobpcg import EigenSolution
from tensormesh.sparse.krylov.solution import numbers_beside

if TYPE_CHECKING:
    from tensormesh.distributed.matrix import DSparseMatrix

# Below this many unknowns an eigenvalue the basis fills the space: the matrix is then gathered.
_FEW = 5


def eigsh(
    K: "DSparseMatrix",
    k: int,
    which: str,
    M: "DSparseMatrix | None",
    preconditioner: str | Preconditioner,
    rtol: float,
    maxiter: int,
) -> tuple[Tensor, Tensor]:
    """Eigenvalues and owned slices of eigenvectors; see `DSparseMatrix.eigsh`. **Collective.**"""
    device_mesh = K.layout.device_mesh
    with agree(device_mesh):
        _check(K, k, which, M, preconditioner, rtol, maxiter)
    named = preconditioner if isinstance(preconditioner, str) else "given"
    given = [f"k = {k}", f"which = {which}", f"M {M is None}", named, str((rtol, maxiter))]
    refuse_different(given, device_mesh)
    for name, A in {"K": K, "M": M}.items():
        if A is not None:
            hermitian = System(A.detach(), False).kind().hermitian
            text = f"eigsh needs symmetric (complex: Hermitian) matrices: {name} is not"
            raise_together(None if hermitian else ValueError(text), device_mesh)
    dtype = K.values.dtype if M is None else torch.promote_types(K.values.dtype, M.values.dtype)
    of_m = None if M is None else M.values.to(dtype)
    mass = None if M is None else M.layout
    options = (k, which, preconditioner, rtol, maxiter)
    found: tuple[Tensor, Tensor] = _Eigen.apply(K.values.to(dtype), of_m, K, mass, options)
    return found


class _Eigen(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        values: Tensor,
        of_mass: Tensor | None,
        K: "DSparseMatrix",
        mass: MatrixLayout | None,
        options: tuple[Any, ...],
    ) -> tuple[Tensor, Tensor]:
        eigenvalues, vectors = _found(K._with_values(values.detach()), of_mass, mass, *options)
        ctx.save_for_backward(values, of_mass, eigenvalues, vectors)
        ctx.layout, ctx.mass = K.layout, mass
        ctx.mark_non_differentiable(vectors)
        return eigenvalues, vectors

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        outers = partial(_outer, ctx.layout), partial(_outer, ctx.mass)
        return (*gradients_of_entries(ctx, grads[0], *outers), None, None, None)


@torch.no_grad()
def _outer(layout: MatrixLayout, vectors: Tensor, factors: Tensor) -> Tensor:
    """Entries of ``sum_i factor_i x_i x_i^H`` on a layout. **Collective.**"""
    return outer(layout.pattern, vectors, factors, layout.with_ghosts(vectors))


def _found(
    K: "DSparseMatrix",
    of_mass: Tensor | None,
    mass: MatrixLayout | None,
    k: int,
    which: str,
    preconditioner: str | Preconditioner,
    rtol: float,
    maxiter: int,
) -> tuple[Tensor, Tensor]:
    M = None if mass is None or of_mass is None else type(K).from_layout(mass, of_mass.detach())
    n = K.shape[0]
    m = k + max(4, k // 4)
    if n <= _FEW * m:
        w, v = K.to_single().eigsh(k, which, M=None if M is None else M.to_single())
        return w, K.layout.vectors.scatter(v)  # type: ignore[arg-type]
    sign = -1 if which == "LA" else 1
    A = ShardedProduct(K.layout, sign * K.values)
    B = None if M is None else ShardedProduct(M.layout, M.values)
    T = _preconditioner(K, preconditioner, which)
    start, total = _start(K, m), System(K, False).total
    solution = lobpcg(A, start, B, T, n_wanted=k, total=total, rtol=rtol, maxiter=maxiter)
    if not solution.converged:
        raise NotConvergedError(_message(solution, k, rtol))
    w = numbers_beside(K.values.real, sign * solution.values[:k])
    vectors = solution.vectors[:, :k]
    return (w.flip(0), vectors.flip(1)) if which == "LA" else (w, vectors.contiguous())


def _preconditioner(
    K: "DSparseMatrix", given: str | Preconditioner, which: str
) -> Preconditioner | None:
    if not isinstance(given, str):
        return given
    diagonal = K.diagonal()
    bad = (diagonal.real <= 0).sum()
    positive = not int(all_reduce_sum(bad, K.layout.device_mesh))
    # An inverse leads to the smallest eigenvalues, and leads away from the largest.
    if given == "auto" and (which == "LA" or not positive):
        return None
    return preconditioner_named(given, K, definite=True, levels=True)


def _start(K: "DSparseMatrix", m: int) -> Tensor:
    """First guesses ``[n_owned, m]``: numbers without order, the same for any number of ranks."""
    dofs = K.layout.owned_dofs.double()
    phase = dofs[:, None] * 12.9898 + 78.233 * torch.arange(1, m + 1, device=dofs.device)
    return ((phase.sin() * 43758.5453).frac() - 0.5 * phase.cos()).to(K.values.dtype)


def _message(solution: EigenSolution, k: int, rtol: float) -> str:
    return (
        f"eigsh stopped after {solution.iterations} iterations at a relative residual of "
        f"{solution.residuals[:k].max():.3e} (rtol = {rtol:g}): raise maxiter or rtol, or give "
        "a better preconditioner, such as Multilevel with the near_null_space of the problem"
    )


def _check(
    K: "DSparseMatrix", k: Any, which: str, M: Any, preconditioner: Any, rtol: float, maxiter: int
) -> None:
    if which not in ("SA", "LA"):
        raise NotImplementedError(
            f"eigsh of a row-sharded matrix with which = {which!r}: take 'SA', the smallest, or "
            "'LA', the largest by value, or gather the matrix with to_single()"
        )
    if not 1 <= k <= K.shape[0]:
        raise ValueError(f"k must lie between 1 and the size of the matrix, {K.shape[0]}, got {k}")
    if isinstance(preconditioner, str) and preconditioner not in PRECONDITIONERS:
        raise ValueError(
            f"preconditioner must be one of {', '.join(PRECONDITIONERS)}, or an object, got "
            f"{preconditioner!r}"
        )
    if not rtol > 0 or maxiter < 1:
        raise ValueError(f"rtol must be > 0 and maxiter at least 1, got {rtol} and {maxiter}")
    if M is None:
        return
    if type(M) is not type(K):
        raise TypeError(f"M must be a DSparseMatrix or None, got {type(M).__name__}")
    if M.layout.uuid != K.layout.uuid or not torch.equal(M.layout.owned_dofs, K.layout.owned_dofs):
        raise ValueError("M belongs to another partition, or has other unknowns: reduce both alike")
