"""Preconditioners by name."""

from typing import TYPE_CHECKING

from tensormesh.distributed.preconditioner.jacobi import Jacobi
from tensormesh.distributed.preconditioner.multilevel import Multilevel
from tensormesh.distributed.preconditioner.schwarz import Schwarz
from tensormesh.sparse.krylov.choice import automatic_preconditioner
from tensormesh.sparse.krylov.preconditioner import Preconditioner

if TYPE_CHECKING:
    from tensormesh.distributed.matrix import DSparseMatrix


def preconditioner_named(
    name: str, A: "DSparseMatrix", definite: bool, levels: bool
) -> Preconditioner | None:
    """Preconditioner of `A`, or None. **Collective over the device mesh.**

    Parameters
    ----------
    name
        A name; ``"auto"`` is chosen here.
    A
        The matrix.
    definite
        Whether it has to be Hermitian positive definite, even if `A` is not.
    levels
        Whether `A` seems to be symmetric positive definite, so that ``"auto"`` may choose
        ``"multilevel"``: it does for real matrices of more than 5,000 unknowns.
    """
    if name == "auto":
        name = automatic_preconditioner(A.shape[0], A.values.dtype, levels)
    if name == "multilevel":
        return Multilevel(A)
    if name == "schwarz":
        return Schwarz(A, definite)
    return None if name == "none" else Jacobi(A, absolute=definite)
