"""Rows of a matrix from the rows of the parts: those that nothing else adds to are only moved."""

import torch
from torch import Tensor

from tensormesh.sparse.pattern import INT32_MAX, SparsityPattern, merge_duplicates


def merge_rows(
    counts: Tensor,
    row: Tensor,
    col: Tensor,
    extra: tuple[Tensor, Tensor],
    shape: tuple[int, int],
) -> tuple[SparsityPattern, Tensor, Tensor]:
    """Pattern of rows to which the rows of parts and single entries are added.

    Most rows come from one part, with columns that increase: their entries stay together, in their
    order. Only the others are sorted.

    Parameters
    ----------
    counts, row
        Number of entries of each row of a part, and where it goes: int64 ``[r]``; those with `row`
        not below ``shape[0]`` go nowhere.
    col
        Columns of the entries, row after row of the parts, int32 or int64 ``[counts.sum()]``.
    extra
        Rows and columns of single entries, int64 ``[k]`` each.
    shape
        Number of rows and of columns.

    Returns
    -------
    pattern, slot, extra_slot
        The pattern, sorted by row then column, and the stored entry of each given one, int32
        where it fits; of entries that go nowhere it has no meaning.
    """
    n_rows, device = shape[0], col.device
    largest = max(*shape, len(col) + len(extra[0]))
    kind = torch.int32 if largest <= INT32_MAX else torch.int64
    here = row < n_rows
    rough = _rough_rows(counts, row, here, col, extra[0], n_rows)
    mixed = here & rough[row.clamp_max(max(n_rows - 1, 0))] if n_rows else here
    moved = here & ~mixed
    start = counts.cumsum(0) - counts
    picked = spans(start[mixed], counts[mixed])
    rows = torch.cat([row[mixed].repeat_interleave(counts[mixed]), extra[0]])
    some, some_slot = merge_duplicates(rows, torch.cat([col[picked], extra[1]]), shape)

    n_of_row = some.crow[1:] - some.crow[:-1]
    n_of_row[row[moved]] = counts[moved]
    crow = torch.cat([n_of_row.new_zeros(1), n_of_row.cumsum(0)])
    first = crow[:-1]
    shift = torch.zeros_like(row)
    shift[moved] = first[row[moved]] - start[moved]
    slot = _numbers(shift.to(kind).repeat_interleave(counts))
    place = torch.arange(some.nnz, device=device) + (first - some.crow[:-1])[some.row]
    slot[picked] = place[some_slot[: len(picked)]].to(kind)

    given = torch.cat([col.to(kind), some.col.to(kind)])
    origin = len(col) + some.crow[:-1]
    origin[row[moved]] = start[moved]
    source = _numbers((origin - first).to(kind).repeat_interleave(n_of_row))
    columns = given.index_select(0, source)
    pattern = SparsityPattern.of_compressed(crow, columns, shape)
    return pattern, slot, place[some_slot[len(picked) :]]


def spans(start: Tensor, counts: Tensor) -> Tensor:
    """Indices ``start[i], start[i] + 1, ...``, `counts[i]` of each, int64 ``[counts.sum()]``."""
    shift = start - (counts.cumsum(0) - counts)
    return _numbers(shift.repeat_interleave(counts))


def _numbers(shift: Tensor) -> Tensor:
    """``i + shift[i]``, in place."""
    return shift.add_(torch.arange(len(shift), dtype=shift.dtype, device=shift.device))


def _rough_rows(
    counts: Tensor, row: Tensor, here: Tensor, col: Tensor, extra_row: Tensor, n_rows: int
) -> Tensor:
    """Rows of the matrix that get more than one row of a part, or columns out of order: bool."""
    rough = torch.bincount(row[here], minlength=n_rows) != 1
    rough[extra_row] = True
    end = counts.cumsum(0)
    starts = torch.zeros(len(col) + 1, dtype=torch.bool, device=col.device)
    starts[end - counts] = True
    falls = ((col[1:] <= col[:-1]) & ~starts[1:-1]).nonzero().flatten() + 1
    falling = row[torch.searchsorted(end, falls, right=True)]
    rough[falling[falling < n_rows]] = True
    return rough
