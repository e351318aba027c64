"""Eigenvalues of row-sharded matrices: checks, start, iteration, and derivatives."""

from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tensormesh.arguments import check_integer, check_positive
from tensormesh.distributed.collectives import agree, all_reduce_sum, raise_together
from tensormesh.distributed.forms import refuse_different
from tensormesh.distributed.guard import Guard
from tensormesh.distributed.layout import MatrixLayout
from tensormesh.distributed.preconditioner import Preconditioner, preconditioner_named
from tensormesh.distributed.product import ShardedProduct
from tensormesh.distributed.system import System
from tensormesh.errors import NotConvergedError
from tensormesh.sparse.eigen import gradients_of_entries, outer
from tensormesh.sparse.krylov import lobpcg
from tensormesh.sparse.krylov.choice import PRECONDITIONERS
from tensormesh.sparse.krylov.lobpcg import EigenSolution
from tensormesh.sparse.krylov.preconditioner import InDtype
from tensormesh.sparse.krylov.solution import numbers_beside

if TYPE_CHECKING:
    from tensormesh.distributed.matrix import DSparseMatrix

# Below this many unknowns an eigenvalue the basis fills the space: the matrix is then gathered.
_FEW = 5
# Share of the mean diagonal entry that is added where nothing holds a body.
_SHIFT = 1e-4
# Steps that look for a direction in which a mass is negative.
_PROBES = 20


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
    if M is not None:
        _refuse_indefinite(M.detach())
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


@torch.no_grad()
def _refuse_indefinite(M: "DSparseMatrix") -> None:
    """Refuse a mass with a direction of negative energy, if some steps find one. **Collective.**"""
    M = M._with_values(M.values.to(torch.promote_types(M.values.dtype, torch.float64)))
    system, device_mesh = System(M, False), M.layout.device_mesh
    text = "M is not positive definite: eigenvalues need a mass that is"
    negative = (M.diagonal().real <= 0).any()
    raise_together(ValueError(text) if bool(negative) else None, device_mesh)
    size = min(2, M.shape[0])
    found = lobpcg(
        system,
        _start(M, size),
        None,
        preconditioner_named("jacobi", M, definite=True, levels=False),
        n_wanted=size,
        total=system.total,
        rtol=1e-8,
        maxiter=_PROBES,
    )
    raise_together(ValueError(text) if found.values[0] <= 0 else None, device_mesh)


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
    # Single precision could not reach a tolerance; it is rounded once, at the end.
    dtype = K.values.dtype
    K = K._with_values(K.values.to(torch.promote_types(dtype, torch.float64)))
    M = None if M is None else M._with_values(M.values.to(K.values.dtype))
    sign = -1 if which == "LA" else 1
    A = ShardedProduct(K.layout, sign * K.values)
    B = None if M is None else ShardedProduct(M.layout, M.values)
    T, system = _preconditioner(K, M, preconditioner, which, dtype), System(K, False)
    total = system.total
    if T is not None and not isinstance(preconditioner, str):
        guard = Guard(system)
        T, total = guard.preconditioner(T), guard.total
    start = _start(K, m)
    eps = torch.finfo(dtype).eps
    solution = lobpcg(A, start, B, T, n_wanted=k, total=total, rtol=rtol, maxiter=maxiter, eps=eps)
    if not solution.converged:
        raise NotConvergedError(_message(solution, k, rtol))
    w = numbers_beside(K.values.real, sign * solution.values[:k]).to(dtype.to_real())
    vectors = solution.vectors[:, :k].to(dtype)
    return (w.flip(0), vectors.flip(1)) if which == "LA" else (w, vectors.contiguous())


def _preconditioner(
    K: "DSparseMatrix",
    M: "DSparseMatrix | None",
    given: str | Preconditioner,
    which: str,
    dtype: torch.dtype,
) -> Preconditioner | None:
    if not isinstance(given, str):
        return given if K.values.dtype == dtype else InDtype(given, dtype)
    diagonal = K.diagonal()
    bad = (diagonal.real <= 0).sum()
    positive = not int(all_reduce_sum(bad, K.layout.device_mesh))
    # An inverse leads to the smallest eigenvalues, and leads away from the largest.
    if given == "auto" and (which == "LA" or not positive):
        return None
    if given != "none" and System(K, False, torch.finfo(dtype).eps).maps_constants_to_zero():
        K = _shifted(K, M, diagonal)
    return preconditioner_named(given, K, definite=True, levels=True)


def _shifted(K: "DSparseMatrix", M: "DSparseMatrix | None", diagonal: Tensor) -> "DSparseMatrix":
    """``K`` plus a small multiple of the mass, which holds what nothing does. **Collective.**"""
    masses = torch.ones_like(diagonal) if M is None else M.diagonal()
    traces = all_reduce_sum(torch.stack([diagonal, masses], 1).abs().sum(0), K.layout.device_mesh)
    shift = float(_SHIFT * traces[0] / traces[1])
    if M is not None:
        return K + M * shift
    on, values = K.layout.diagonal_entries, K.values.clone()
    values[on[on >= 0]] += shift
    return K._with_values(values)


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
    check_integer("k", k)
    if not 1 <= k <= K.shape[0]:
        raise ValueError(f"k must lie between 1 and the size of the matrix, {K.shape[0]}, got {k}")
    if isinstance(preconditioner, str) and preconditioner not in PRECONDITIONERS:
        raise ValueError(
            f"preconditioner must be one of {', '.join(PRECONDITIONERS)}, or an object, got "
            f"{preconditioner!r}"
        )
    check_positive("rtol", rtol)
    check_integer("maxiter", maxiter, 1)
    if M is None:
        return
    if type(M) is not type(K):
        raise TypeError(f"M must be a DSparseMatrix or None, got {type(M).__name__}")
    if M.layout.uuid != K.layout.uuid or not torch.equal(M.layout.owned_dofs, K.layout.owned_dofs):
        raise ValueError("M belongs to another partition, or has other unknowns: reduce both alike")
