"""One way to look at what assemblers give."""

from torch import Tensor

from tensormesh.sparse import SparseMatrix


def entries(result: SparseMatrix | Tensor) -> Tensor:
    """Stored values of a matrix, or the vector itself."""
    return result if isinstance(result, Tensor) else result.values
