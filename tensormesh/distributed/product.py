"""Products of a row-sharded matrix and its transpose, exchange and computation overlapped."""

from torch import Tensor

from tensormesh.distributed.layout import MatrixLayout


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
        owned, ghost = layout.blocks
        self._owned = owned.matrix(values)
        self._ghost = None if ghost is None else (ghost.rows, ghost.matrix(values))

    def __matmul__(self, x: Tensor) -> Tensor:
        handle = self._layout.halo.start_forward(self._layout.rows(x))
        y = self._owned @ x
        ghosts = handle.wait()
        if self._ghost is not None:
            rows, block = self._ghost
            y.index_add_(0, rows, block @ ghosts.flatten(0, 1))
        return y


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
        owned, ghost = layout.blocks
        self._owned = owned.transposed(values)
        self._ghost = None if ghost is None else (ghost.rows, ghost.transposed(values))

    def __matmul__(self, x: Tensor) -> Tensor:
        layout, halo = self._layout, self._layout.halo
        ghosts = x[:0]
        if self._ghost is not None:
            rows, block = self._ghost
            ghosts = block @ x[rows]
        handle = halo.start_reverse(ghosts.unflatten(0, (-1, layout.h)))
        y = self._owned @ x
        layout.rows(y).index_add_(0, halo.send_index, handle.wait())
        return y
