"""The sparsity pattern of a matrix: where its entries are, and nothing about their values."""

import hashlib
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array
from torch import Tensor

INT32_MAX = 2**31 - 1


class SparsityPattern:
    """Positions of the stored entries of a sparse matrix, shared by all matrices that have them.

    Parameters
    ----------
    row, col
        Row and column of each stored entry, int64 ``[nnz]``, in any order.
    shape
        Number of rows and of columns.

    Raises
    ------
    ValueError
        If `row` and `col` differ in length or are not 1-D, or name a row or column outside `shape`.
    TypeError
        If the indices are not integers.
    """

    def __init__(self, row: Tensor, col: Tensor, shape: tuple[int, int]) -> None:
        self.shape = (int(shape[0]), int(shape[1]))
        if min(self.shape) < 0:
            raise ValueError(f"shape must not be negative, got {self.shape}")
        self.row = _checked("row", row, self.shape[0])
        self.col = _checked("col", col, self.shape[1])
        if self.row.shape != self.col.shape:
            raise ValueError(
                f"row has {self.row.numel()} entries and col has {self.col.numel()}: "
                "each stored entry needs one of both"
            )
        self._compressed: tuple[Tensor, Tensor] | None = None

    @classmethod
    def of_compressed(cls, crow: Tensor, col: Tensor, shape: tuple[int, int]) -> "SparsityPattern":
        """Pattern of compressed rows, which are not checked.

        `row`, and `col` where these columns are int32, are made when somebody asks.

        Parameters
        ----------
        crow, col
            Row pointers ``[n_rows + 1]`` and columns ``[nnz]``, int32 or int64.
        shape
            Number of rows and of columns.
        """
        made = cls.__new__(cls)
        made.shape, made._compressed = shape, (crow, col)
        return made

    @cached_property
    def row(self) -> Tensor:
        """Row of each stored entry, int64 ``[nnz]``."""
        rows = torch.arange(self.shape[0], device=self.device)
        return rows.repeat_interleave(self.crow.diff(), output_size=self.nnz)

    @cached_property
    def col(self) -> Tensor:
        """Column of each stored entry, int64 ``[nnz]``."""
        return self._any_index.long()

    def by_rows(self, n_entries: int = 1 << 18) -> Iterator[tuple[slice, Tensor]]:
        """Slices of the entries, some whole rows each, and the row of each of their entries.

        For patterns that are stored by row: all rows at once would be as long as the matrix.

        Parameters
        ----------
        n_entries
            About so many entries at once.
        """
        crow, n_rows = self.crow, self.shape[0]
        step = max(1, n_entries * n_rows // max(self.nnz, 1))
        numbers = torch.arange(n_rows, device=self.device)
        ends = [*crow[::step].tolist(), self.nnz]
        for k, rows in enumerate(numbers.split(step)):
            counts = crow[k * step : k * step + len(rows) + 1].diff()
            yield slice(ends[k], ends[k + 1]), rows.repeat_interleave(counts)

    @property
    def _any_index(self) -> Tensor:
        return self.row if self._compressed is None else self._compressed[1]

    @property
    def nnz(self) -> int:
        """Number of stored entries."""
        return self._any_index.numel()

    @property
    def device(self) -> torch.device:
        """Device of the indices."""
        return self._any_index.device

    @property
    def index_dtype(self) -> torch.dtype:
        """int32 where rows, columns and entries fit in it, else int64."""
        return torch.int32 if max(*self.shape, self.nnz) <= INT32_MAX else torch.int64

    @cached_property
    def order(self) -> Tensor | None:
        """Stable order of the entries by row, int64 ``[nnz]``; None if they are stored so."""
        if self._compressed is not None or self.nnz < 2:
            return None
        if bool((self.row[1:] >= self.row[:-1]).all()):
            return None
        return torch.argsort(self.row, stable=True)

    @cached_property
    def crow(self) -> Tensor:
        """Row pointers of the compressed rows, int64 ``[n_rows + 1]``."""
        if self._compressed is not None:
            return self._compressed[0].long()
        counts = torch.bincount(self.row, minlength=self.shape[0])
        return torch.cat([counts.new_zeros(1), counts.cumsum(0)])

    @cached_property
    def csr_indices(self) -> tuple[Tensor, Tensor]:
        """Row pointers and columns in row order, in `index_dtype`."""
        if self._compressed is not None:
            crow, col = self._compressed
            return crow.to(self.index_dtype), col.to(self.index_dtype)
        col = self.col if self.order is None else self.col[self.order]
        return self.crow.to(self.index_dtype), col.to(self.index_dtype)

    @cached_property
    def transpose(self) -> "SparsityPattern":
        """The pattern of the transpose, its entries in the same storage order."""
        flipped = SparsityPattern.__new__(SparsityPattern)
        flipped.shape, flipped._compressed = self.shape[::-1], None
        flipped.row, flipped.col = self.col, self.row
        return flipped

    @cached_property
    def signature(self) -> tuple[tuple[int, int], int, str]:
        """Identity by content: equal for equal patterns, whoever made them, wherever they are."""
        digest = hashlib.blake2b(digest_size=16)
        for index in (self.row, self.col):
            digest.update(index.cpu().numpy().tobytes())
        return self.shape, self.nnz, digest.hexdigest()

    def same_as(self, other: "SparsityPattern") -> bool:
        """Whether `other` stores the same entries in the same order."""
        return self is other or self.signature == other.signature

    def to(self, device: torch.device | str | None) -> "SparsityPattern":
        """Copy on another device; the pattern itself if it is there already."""
        if device is None or torch.device(device) == self.device:
            return self
        if self._compressed is not None:
            crow, col = self._compressed
            return self.of_compressed(crow.to(device), col.to(device), self.shape)
        moved = SparsityPattern.__new__(SparsityPattern)
        moved.shape, moved._compressed = self.shape, None
        moved.row, moved.col = self.row.to(device), self.col.to(device)
        return moved

    def restricted(
        self, entries: Tensor, keep: Tensor, place: Tensor, n_cols: int
    ) -> "SparsityPattern":
        """Pattern of some entries of a pattern that is stored by row, in fewer rows and columns.

        Parameters
        ----------
        entries
            Stored entries that stay, int64 ``[k]``, increasing.
        keep
            Which rows stay, bool ``[n_rows]``; the others have none of `entries`.
        place
            New column of each column that stays, int64 ``[n_cols]``, in the same order.
        n_cols
            Number of new columns.
        """
        _, col = self.csr_indices
        before = torch.searchsorted(entries, self.crow)
        crow = torch.cat([before[:-1][keep], before[-1:]])
        columns = place.to(col.dtype).index_select(0, col.index_select(0, entries))
        return self.of_compressed(crow, columns, (len(crow) - 1, n_cols))

    def empty_rows(self) -> Tensor:
        """Bool ``[n_rows]``: rows without a stored entry."""
        return self.crow[1:] == self.crow[:-1]


def _checked(name: str, index: Tensor, limit: int) -> Tensor:
    if (
        not isinstance(index, Tensor)
        or index.dtype.is_floating_point
        or index.dtype.is_complex
        or index.dtype == torch.bool
    ):
        raise TypeError(f"{name} must be an integer tensor, got {getattr(index, 'dtype', index)!r}")
    if index.dim() != 1:
        raise ValueError(f"{name} must be 1-D, got shape {tuple(index.shape)}")
    index = index.to(torch.int64)
    if index.numel() and (int(index.min()) < 0 or int(index.max()) >= limit):
        wrong = index[(index < 0) | (index >= limit)][0]
        raise ValueError(f"{name} names index {int(wrong)}, outside 0 .. {limit - 1}")
    return index


def merge_duplicates(
    row: Tensor, col: Tensor, shape: tuple[int, int]
) -> tuple[SparsityPattern, Tensor]:
    """Pattern without duplicates, sorted by row then column, and where each given entry lands.

    Parameters
    ----------
    row, col
        int64 ``[k]``, with repetitions.
    shape
        Number of rows and of columns.

    Returns
    -------
    pattern, slot
        The pattern, and int64 ``[k]``: entry ``i`` belongs to stored entry ``slot[i]``.
    """
    dtype = np.int32 if max(*shape, row.numel()) <= INT32_MAX else np.int64
    rows, cols = (x.cpu().numpy().astype(dtype) for x in (row, col))
    merged = coo_array((np.ones(len(rows), dtype=bool), (rows, cols)), shape).tocsr()
    # Transposed twice, each row is sorted: by counting, not by comparing.
    merged = merged.T.tocsr().T.tocsr()
    merged.sum_duplicates()
    slot = torch.from_numpy(entries_at(numbered(merged), rows, cols).astype(np.int64))
    return pattern_of(merged, row.device), slot.to(row.device)


def numbered(matrix: csr_array) -> csr_array:
    """Replace the values of a matrix with sorted rows by the numbers of its entries."""
    number = np.arange(matrix.nnz, dtype=matrix.indices.dtype)
    entries = csr_array((number, matrix.indices, matrix.indptr), shape=matrix.shape)
    entries.has_canonical_format = True
    return entries


def entries_at(entries: csr_array, rows: NDArray[Any], cols: NDArray[Any]) -> NDArray[Any]:
    """Numbers of stored entries, by bisection in the rows of a `numbered` matrix."""
    # Without positions, scipy gives a sparse array.
    return entries[rows, cols] if len(rows) else entries.data[:0]


def pattern_of(matrix: csr_array, device: torch.device) -> SparsityPattern:
    """Pattern of a matrix of scipy whose rows are sorted."""
    crow, col = (torch.from_numpy(x).to(device) for x in (matrix.indptr, matrix.indices))
    return SparsityPattern.of_compressed(crow, col, matrix.shape)


class BlockExpansion:
    """How ``h x h`` blocks on a pattern become scalar entries, row-major, unknowns node-major.

    Unknown ``node * h + component``: the scalar pattern of a node pattern whose entries are blocks.

    Parameters
    ----------
    pattern
        Pattern of the blocks, sorted by row.
    h
        Size of a block.
    n_given
        Number of blocks whose components `values` gets, those of the pattern first; by default
        just these.
    present
        Which scalar rows and columns there are, bool ``[n_rows * h]`` and ``[n_cols * h]``: the
        others get no entries. By default all.
    """

    def __init__(
        self,
        pattern: SparsityPattern,
        h: int,
        n_given: int | None = None,
        present: tuple[Tensor, Tensor] | None = None,
    ) -> None:
        self.h = h
        n_given = pattern.nnz if n_given is None else n_given
        self.scalar, self._source = _expand(pattern, h, n_given)
        if present is not None:
            self._leave_out(*present)

    def _leave_out(self, rows: Tensor, columns: Tensor) -> None:
        whole = self.scalar
        kept = (rows[whole.row] & columns[whole.col]).nonzero().flatten()
        self.scalar = SparsityPattern(whole.row[kept], whole.col[kept], whole.shape)
        self._source = kept if self._source is None else self._source[kept]

    def values(self, blocks: Tensor) -> Tensor:
        """Scalar values ``[nnz * h * h]`` from the components of blocks, ``[h * h, n_given]``."""
        flat = blocks.reshape(-1)
        return (
            flat[: self.scalar.nnz] if self._source is None else flat.index_select(0, self._source)
        )


def _expand(
    pattern: SparsityPattern, h: int, n_given: int
) -> tuple[SparsityPattern, Tensor | None]:
    if h == 1:
        return pattern, None
    device, nnz = pattern.device, pattern.nnz
    length = (pattern.crow[1:] - pattern.crow[:-1]).repeat_interleave(h)
    # Scalar row by scalar row, the blocks that it cuts through.
    scalar_row = torch.arange(len(length), device=device).repeat_interleave(length)
    component = scalar_row % h
    first = length.cumsum(0) - length
    skipped = first - pattern.crow[:-1].repeat_interleave(h)
    block = torch.arange(h * nnz, device=device) - skipped[scalar_row]
    within = torch.arange(h, device=device)
    row = scalar_row.repeat_interleave(h)
    col = torch.add(pattern.col[block].unsqueeze(1) * h, within).flatten()
    dtype = torch.int32 if h * h * n_given <= INT32_MAX else torch.int64
    in_first = (component * (h * n_given) + block).to(dtype)
    source = torch.add(in_first.unsqueeze(1), within.to(dtype) * n_given).flatten()
    return SparsityPattern(row, col, (pattern.shape[0] * h, pattern.shape[1] * h)), source
