"""Products of a row-sharded matrix and its transpose, exchange and computation overlapped."""

from torch import Tensor

from tensormesh.distributed.layout import MatrixLayout
from tensormesh.sparse.product import csr_tensor


class ShardedProduct:
    """``A @ x`` on owned slices, without gradients: what an iterative solver calls.

    While the ghosts travel, all rows are multiplied with zeros in their place: so the entries of
    the matrix serve as they are, where owned and ghost columns apart would be a copy of it. **Each
    product is collective over the device mesh of the layout.**

    Parameters
    ----------
    layout
        Layout of the matrix.
    values
        Its entries ``[nnz]``.
    """

    def __init__(self, layout: MatrixLayout, values: Tensor) -> None:
        self._layout = layout
        self._whole = csr_tensor(layout.pattern, values)
        self._padded = values[:0]
        block = layout.ghost_block
        self._ghost = None
        if block is not None:
            self._ghost = block.rows, csr_tensor(block.pattern, block.values(values))

    def __matmul__(self, x: Tensor) -> Tensor:
        handle = self._layout.halo.start_forward(self._layout.rows(x))
        if self._ghost is None:
            y = self._whole @ x
            handle.wait()
            return y
        y = self._whole @ self._with_zeros(x)
        rows, block = self._ghost
        y.index_add_(0, rows, block @ handle.wait().flatten(0, 1))
        return y

    def _with_zeros(self, x: Tensor) -> Tensor:
        shape = (self._layout.n_local, *x.shape[1:])
        if (self._padded.shape, self._padded.dtype) != (shape, x.dtype):
            self._padded = x.new_zeros(shape)
        self._padded[: len(x)] = x
        return self._padded


class TransposedProduct:
    """``A.T @ x`` on owned slices, without gradients.

    What columns of ghosts gather travels to their owners while all columns are multiplied. **Each
    product is collective over the device mesh of the layout.**

    Parameters
    ----------
    layout
        Layout of the matrix ``A``.
    values
        Its entries ``[nnz]``.
    """

    def __init__(self, layout: MatrixLayout, values: Tensor) -> None:
        self._layout = layout
        self._whole = csr_tensor(layout.pattern.transpose, values)
        block = layout.ghost_block
        self._ghost = None
        if block is not None:
            self._ghost = block.rows, csr_tensor(block.pattern.transpose, block.values(values))

    def __matmul__(self, x: Tensor) -> Tensor:
        layout, halo = self._layout, self._layout.halo
        ghosts = x[:0]
        if self._ghost is not None:
            rows, block = self._ghost
            ghosts = block @ x[rows]
        handle = halo.start_reverse(ghosts.unflatten(0, (-1, layout.h)))
        y = (self._whole @ x)[: layout.n_owned]
        layout.rows(y).index_add_(0, halo.send_index, handle.wait())
        return y
