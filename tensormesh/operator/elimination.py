"""What a mask of constrained unknowns means for the entries of one layout."""

from collections.abc import Hashable
from typing import Any

import torch
from torch import Tensor

# Layout of the matrix, mask, and how often the mask was written to.
Key = tuple[Hashable, Tensor, int]


class Elimination:
    """Which entries of a layout stay, and which couple to constrained unknowns.

    Symbolic: made once per layout. Entries are named by their place in ``K.values``.
    """

    def __init__(self, K: Any, key: Key) -> None:
        if K.shape[0] != K.shape[1]:
            raise ValueError(f"K must be square, got shape {tuple(K.shape)}")
        self._key = key
        self._matrix = K.detach()
        self.constrained: Tensor = K._own_dofs(dirichlet_mask=key[1])[0]
        without_equation = K._rows_without_entries()
        self.free = ~(self.constrained | without_equation)
        self.n_free = int(self.free.sum())
        self.free_columns: Tensor = K._column_values(self.free)
        row_free, col_free = self.free[K.row_indices], self.free_columns[K.col_indices]
        self.inner = (row_free & col_free).nonzero().flatten()
        self.coupling = (row_free & ~col_free).nonzero().flatten()
        self.coupling_row = self.numbered(self.coupling, "row")
        self.coupling_col = K.col_indices[self.coupling]
        self.restriction = K._restrict(self.free, self.inner)

    @property
    def layout(self) -> Hashable:
        """Layout that this was made for."""
        return self._key[0]

    def marked(self, entries: Tensor) -> Tensor:
        """Bool per stored entry: the given ones."""
        mask = torch.zeros(self._matrix.values.shape, dtype=torch.bool, device=entries.device)
        mask[entries] = True
        return mask

    def numbered(self, entries: Tensor, side: str) -> Tensor:
        """Number of the row, the column, or the outer column of entries among their kind."""
        index = self._matrix.row_indices if side == "row" else self._matrix.col_indices
        kind = {"row": self.free, "col": self.free_columns, "outer": ~self.free_columns}[side]
        return (kind.cumsum(0) - 1)[index[entries]]

    def column_values(self, x: Tensor) -> Tensor:
        """`x` per row, extended to the columns that the rows of the matrix name."""
        values: Tensor = self._matrix._column_values(x)
        return values

    def is_of(self, key: Key) -> bool:
        """Whether this was made for that layout and that mask, as the mask is now."""
        layout, mask, version = self._key
        return key[1] is mask and key[2] == version and key[0] == layout

    def own(self, **given: Tensor | None) -> list[Any]:
        """Data by name, in any form, as the rows of the matrix see them; None stays None."""
        own: list[Any] = self._matrix._own_dofs(**given)
        return own

    def raise_if(self, error: Exception | None) -> None:
        """Raise `error` if there is one; of a sharded matrix, on all ranks that of any."""
        self._matrix._raise_if(error)
