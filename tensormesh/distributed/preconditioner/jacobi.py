"""Division by the diagonal."""

from typing import TYPE_CHECKING

from tensormesh.distributed.collectives import raise_together
from tensormesh.sparse.krylov.diagonal import Diagonal, refused

if TYPE_CHECKING:
    from tensormesh.distributed.matrix import DSparseMatrix


class Jacobi(Diagonal):
    """Division by the diagonal. **Making one is collective over the device mesh.**

    Parameters
    ----------
    A
        The matrix.
    absolute
        Whether to divide by absolute values, which is positive definite for any matrix.

    Raises
    ------
    ValueError
        On every rank, if a diagonal entry is zero or not finite.
    """

    def __init__(self, A: "DSparseMatrix", absolute: bool = False) -> None:
        diagonal = A.diagonal().detach()
        raise_together(refused(diagonal, A.layout.owned_dofs), A.layout.device_mesh)
        super().__init__(diagonal, absolute)
