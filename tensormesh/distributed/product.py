"""Products of a row-sharded matrix and its transpose, exchange and computation overlapped."""

from torch import Tensor

from tensormesh.distributed.layout import MatrixLayout
from tensormesh.sparse.product import csr_tensor


class ShardedProduct:
    """``A @ x`` on owned slices, without gradients: what an iterative solver calls.

    The exchange of ghosts runs while the owned x owned block is multiplied. **Each product is
    collective over the device mesh of the layout.**

    Parameters
    ----------
    layout
        Layout of the matrix.
    values
        Its entries ``[nnz]``.
    """

    def __init__(self, layout: MatrixLayout, values: Tensor) -> None:
        self._layout = layout
        owned, ghost = layout.split
        self._owned = csr_tensor(owned.pattern, values[owned.entries])
        self._ghost = csr_tensor(ghost.pattern, values[ghost.entries])

    def __matmul__(self, x: Tensor) -> Tensor:
        handle = self._layout.halo.start_forward(self._layout.rows(x))
        y = self._owned @ x
        ghosts = handle.wait().flatten(0, 1)
        return y + self._ghost @ ghosts if ghosts.shape[0] else y


class TransposedProduct:
    """``A.T @ x`` on owned slices, without gradients.

    What columns of ghosts gather travels to their owners while the owned x owned block is
    multiplied. **Each product is collective over the device mesh of the layout.**

    Parameters
    ----------
    layout
        Layout of the matrix ``A``.
    values
        Its entries ``[nnz]``.
    """

    def __init__(self, layout: MatrixLayout, values: Tensor) -> None:
        self._layout = layout
        owned, ghost = layout.split
        self._owned = csr_tensor(owned.pattern.transpose, values[owned.entries])
        self._ghost = csr_tensor(ghost.pattern.transpose, values[ghost.entries])

    def __matmul__(self, x: Tensor) -> Tensor:
        layout, halo = self._layout, self._layout.halo
        handle = halo.start_reverse(layout.rows(self._ghost @ x))
        y = self._owned @ x
        layout.rows(y).index_add_(0, halo.send_index, handle.wait())
        return y
