"""`PatternTensor`: torch-sla's sparse tensor on a `SparsityPattern`."""

from torch import Tensor
from torch_sla import SparseTensor

from tensormesh.sparse.pattern import SparsityPattern


class PatternTensor(SparseTensor):
    """Sparse tensor whose indices are those of a pattern, made when somebody asks for them.

    Parameters
    ----------
    pattern
        Positions of the entries.
    values
        ``[nnz]``.
    shape
        Number of rows and of columns; by default those of the pattern.
    """

    def __init__(
        self, pattern: SparsityPattern, values: Tensor, shape: tuple[int, int] | None = None
    ) -> None:
        self.pattern = pattern.to(values.device)
        super().__init__(values, None, None, shape or pattern.shape)

    @property
    def row_indices(self) -> Tensor:
        """Row of each value, int64 ``[nnz]``."""
        return self.pattern.row

    @row_indices.setter
    def row_indices(self, given: None) -> None:
        """Nothing: the constructor above has given the pattern instead."""

    @property
    def col_indices(self) -> Tensor:
        """Column of each value, int64 ``[nnz]``."""
        return self.pattern.col

    @col_indices.setter
    def col_indices(self, given: None) -> None:
        """Nothing, as of `row_indices`."""
