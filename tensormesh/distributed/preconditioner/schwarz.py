"""Additive Schwarz without overlap: each rank solves with its own block, approximately."""

from typing import TYPE_CHECKING, Any

import scipy.sparse as sp
import torch
from torch import Tensor

from tensormesh.distributed.collectives import agree
from tensormesh.sparse.host_inverse import applied, cycle, incomplete_factors

if TYPE_CHECKING:
    from tensormesh.distributed.matrix import DSparseMatrix


class Schwarz:
    """Approximate inverse of the owned x owned block, on the host. **Collective to make.**

    It sends nothing when applied, and the iterations grow with the number of ranks.

    Parameters
    ----------
    A
        The matrix, real or complex.
    definite
        Whether to be Hermitian positive definite, as `A` must then be: by a V-cycle of pyamg within
        the rank. Else by incomplete factors, which serve any matrix.
    transposed
        Whether to invert the transpose.

    Raises
    ------
    RuntimeError
        On every rank, if the block of one of them is singular.
    """

    name = "schwarz"

    def __init__(
        self, A: "DSparseMatrix", definite: bool = False, transposed: bool = False
    ) -> None:
        self._A, self._definite, self._transposed = A, definite, transposed
        with agree(A.layout.device_mesh):
            block = _own_block(A)
            self._solve = cycle(block) if definite else incomplete_factors(block, transposed)

    @property
    def T(self) -> "Schwarz":
        """That of the transpose. **Collective.**"""
        return Schwarz(self._A, self._definite, not self._transposed)

    def __matmul__(self, r: Tensor) -> Tensor:
        """Apply to owned slices ``[n_owned]`` or ``[n_owned, k]``."""
        return applied(self._solve, r) if r.shape[0] else r.clone()


def _own_block(A: "DSparseMatrix") -> Any:
    """Owned rows and columns, in double precision."""
    crow, col = (index.cpu().numpy() for index in A.layout.pattern.csr_indices)
    values = A.values.detach().to(torch.complex128 if A.values.is_complex() else torch.float64)
    rows = sp.csr_matrix((values.cpu().numpy(), col, crow), shape=A.layout.pattern.shape)
    return rows[:, : A.layout.n_owned]
