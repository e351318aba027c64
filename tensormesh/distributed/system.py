"""A sharded system."""

from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tensormesh.distributed.collectives import all_reduce_sum, raise_together
from tensormesh.distributed.product import ShardedProduct, TransposedProduct
from tensormesh.sparse.krylov.solution import Array, Operator
from tensormesh.sparse.krylov.system import LinearSystem

if TYPE_CHECKING:
    from tensormesh.distributed.matrix import DSparseMatrix


class System(LinearSystem):
    """A row-sharded matrix or its transpose, as an operator. **Collective over the device mesh.**

    Parameters
    ----------
    matrix
        The matrix ``A``.
    transposed
        Whether the operator is ``A.T``.
    eps
        Precision of the entries, where it is not that of their dtype.
    """

    def __init__(self, matrix: "DSparseMatrix", transposed: bool, eps: float | None = None) -> None:
        self.eps = torch.finfo(matrix.values.dtype).eps if eps is None else eps
        self.matrix, self.transposed = matrix, transposed
        make = TransposedProduct if transposed else ShardedProduct
        self._product: Operator = make(matrix.layout, matrix.values)

    def __matmul__(self, x: Tensor) -> Tensor:
        """Product with owned slices."""
        return self._product @ x

    def total(self, x: Tensor) -> Array:
        """Sum of a small tensor over the ranks, on the host in double precision."""
        wide = torch.complex128 if x.is_complex() else torch.float64
        summed: Tensor = all_reduce_sum(x.to(wide), self.matrix.layout.device_mesh)
        array: Array = summed.cpu().resolve_conj().numpy()
        return array

    def row_sums(self) -> Tensor:
        """Sums of absolute entries, of the rows of the matrix itself."""
        return self._row_sums

    @cached_property
    def _row_sums(self) -> Tensor:
        values = self.matrix.values.detach()
        sums = values[:0].abs().new_zeros(self.matrix.layout.n_owned)
        for some, rows in self.matrix.layout.pattern.by_rows():
            sums.index_add_(0, rows, values[some].abs())
        return sums

    def diagonal(self) -> Tensor:
        """Owned slice of the diagonal."""
        return self.matrix.diagonal().detach()

    @property
    def numbers(self) -> Tensor:
        """Numbers of the owned unknowns in the input."""
        return self.matrix.layout.owned_dofs

    def constants(self) -> Tensor:
        """Constants of each component, ``[n_owned, h]``."""
        layout, like = self.matrix.layout, self.matrix.values.detach()
        ones = torch.eye(layout.h, dtype=like.dtype, device=like.device)
        return ones.repeat(layout.n_owned // layout.h, 1)

    def component(self, column: int) -> str:
        """Which one a column of `constants` is of."""
        return f"component {column} of {self.matrix.layout.h}"

    def adjoint(self) -> Operator:
        """The conjugate transpose."""
        conjugate = self.matrix._with_values(self.matrix.values.detach().conj())
        return conjugate if self.transposed else conjugate.T

    def agree_on(self, error: Exception | None) -> None:
        """Raise on every rank if one has an error."""
        raise_together(error, self.matrix.layout.device_mesh)
