"""The transpose of a row-sharded matrix, as an operator: nothing is moved or stored."""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from tensormesh.distributed.owned_vector import like
from tensormesh.distributed.solve import solve
from tensormesh.distributed.solve_options import SolveOptions
from tensormesh.sparse.product import multiply

if TYPE_CHECKING:
    from tensormesh.distributed.matrix import DSparseMatrix
    from tensormesh.sparse.matrix import SparseMatrix


class TransposedMatrix:
    """``A.T``: what a row-sharded matrix can do transposed without moving its entries.

    Parameters
    ----------
    matrix
        The matrix ``A``.
    """

    def __init__(self, matrix: "DSparseMatrix") -> None:
        self._matrix = matrix

    @property
    def T(self) -> "DSparseMatrix":
        """The matrix itself."""
        return self._matrix

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and columns."""
        n_rows, n_cols = self._matrix.shape
        return (n_cols, n_rows)

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of the entries."""
        return self._matrix.values.dtype

    def __repr__(self) -> str:
        return f"transpose of {self._matrix!r}"

    def __matmul__(self, x: Any) -> Any:
        """Product ``A.T x``, one exchange of ghosts to owners. **Collective**, differentiable.

        Parameters
        ----------
        x
            Owned slice ``[n_owned]`` or ``[n_owned, k]``, or `DTensor`.

        Returns
        -------
        Tensor or DTensor
            The product in the same form.

        Raises
        ------
        ValueError
            If the length is not that of the owned slice.
        """
        if isinstance(x, DTensor):
            return like(x, self @ x.to_local(), self._matrix.layout)
        layout = self._matrix.layout
        if x.dim() not in (1, 2) or x.shape[0] != layout.n_owned:
            raise ValueError(
                f"x has shape {tuple(x.shape)}; expected the owned slice [{layout.n_owned}], or "
                "columns of it"
            )
        local: Tensor = multiply(layout.pattern.transpose, self._matrix.values, x)
        return layout.halo.scatter_reverse(layout.rows(local)).flatten(0, 1)

    def solve(self, b: Any, *, return_info: bool = False, **options: Any) -> Any:
        """Solve ``A.T x = b``, differentiable. **Collective over the device mesh.**

        Parameters
        ----------
        b
            Owned slice ``[n_owned]`` or ``[n_owned, k]``, or `DTensor`.
        return_info
            Whether to return the `SolveInfo` too.
        **options
            As of `DSparseMatrix.solve`, by keyword. A preconditioner given as an object is one of
            ``A.T``.

        Returns
        -------
        x or (x, info)
            Owned slice of the solution, in the form of `b`.

        Raises
        ------
        NotConvergedError, SingularMatrixError, ValueError
            As `DSparseMatrix.solve`.
        """
        x, info = solve(self._matrix, b, SolveOptions(**options), transposed=True)
        return (x, info) if return_info else x

    def diagonal(self) -> Tensor:
        """Owned slice of the diagonal, ``[n_owned]``."""
        return self._matrix.diagonal()

    def to_single(self) -> "SparseMatrix":
        """Whole transpose on every rank, in the input's numbering. **Collective.**"""
        return self._matrix.to_single().T
