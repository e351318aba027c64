"""Preconditioners by name, of systems on one device."""

import scipy.sparse as sp
import torch
from torch import Tensor

from tensormesh.sparse.host_inverse import HostSolver, applied, cycle, incomplete_factors
from tensormesh.sparse.krylov.choice import automatic_preconditioner
from tensormesh.sparse.krylov.diagonal import Diagonal, refused
from tensormesh.sparse.krylov.preconditioner import InDtype, Preconditioner
from tensormesh.sparse.system import System


class HostInverse:
    """An approximate inverse on the host.

    Parameters
    ----------
    name
        What it is called.
    solve
        What it does.
    """

    def __init__(self, name: str, solve: HostSolver) -> None:
        self.name, self._solve = name, solve

    def __matmul__(self, r: Tensor) -> Tensor:
        return applied(self._solve, r)


# What need not be converted to the dtype of an iteration.
MADE_HERE = (HostInverse, Diagonal, InDtype)


def preconditioner_named(name: str, A: System, method: str) -> Preconditioner | None:
    """Preconditioner of a matrix, or None.

    Parameters
    ----------
    name
        ``"auto"``, ``"jacobi"``, ``"multilevel"``, ``"schwarz"`` (of one part: a cycle of levels,
        or incomplete factors) or ``"none"``.
    A
        The matrix.
    method
        What it is for; cg and minres need one that is Hermitian positive definite.

    Raises
    ------
    ValueError
        If the diagonal does not allow it.
    TypeError
        If the matrix is complex, and the preconditioner for real ones only.
    RuntimeError
        If incomplete factors are singular.
    """
    definite = method in ("cg", "minres")
    if name == "auto":
        name = automatic_preconditioner(len(A.numbers), A.values.dtype, method == "cg")
    if name == "none":
        return None
    if name == "multilevel":
        return HostInverse(name, cycle(_checked(A)))
    if name == "schwarz":
        matrix = _on_host(A)
        return HostInverse(name, cycle(matrix) if definite else incomplete_factors(matrix))
    diagonal = A.diagonal()
    A.agree_on(refused(diagonal, A.numbers))
    return Diagonal(diagonal, absolute=definite)


def _on_host(A: System) -> sp.csr_matrix:
    indices = (A.pattern.row.cpu().numpy(), A.pattern.col.cpu().numpy())
    entries = sp.coo_array((A.values.cpu().resolve_conj().numpy(), indices), A.pattern.shape)
    # pyamg asks for the class that stands for matrices, and for 32-bit indices.
    return sp.csr_matrix(entries.tocsr())


def _checked(A: System) -> sp.csr_matrix:
    if A.values.is_complex():
        raise TypeError(
            f"the matrix is {A.values.dtype}: preconditioner 'multilevel' is for real ones; take "
            "'jacobi'"
        )
    diagonal = A.diagonal()
    bad = (~(torch.isfinite(diagonal) & (diagonal > 0))).nonzero().flatten()
    if bad.numel():
        raise ValueError(
            f"preconditioner = 'multilevel': {bad.numel()} diagonal entries (first: row "
            f"{int(bad[0])}, {diagonal[bad[0]].item():g}) are not positive; use 'jacobi' or "
            "'schwarz'"
        )
    return _on_host(A)
