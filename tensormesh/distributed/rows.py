"""Rows of a matrix from the rows of the parts: those that nothing else adds to are only moved."""

import torch
from torch import Tensor

from tensormesh.sparse.pattern import SparsityPattern, merge_duplicates


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
        Columns of the entries, row after row of the parts, int64 ``[counts.sum()]``.
    extra
        Rows and columns of single entries, int64 ``[k]`` each.
    shape
        Number of rows and of columns.

    Returns
    -------
    pattern, slot, extra_slot
        The pattern, sorted by row then column, and the stored entry of each given one; of entries
        that go nowhere it has no meaning.
    """
    device, (n_rows, _) = col.device, shape
    here = row < n_rows
    rough = _rough_rows(counts, row, here, col, extra[0], n_rows)
    mixed = here & rough[row.clamp_max(max(n_rows - 1, 0))] if n_rows else here
    moved = here & ~mixed
    picked = mixed.repeat_interleave(counts).nonzero().flatten()
    rows = torch.cat([row[mixed].repeat_interleave(counts[mixed]), extra[0]])
    some, some_slot = merge_duplicates(rows, torch.cat([col[picked], extra[1]]), shape)

    n_of_row = some.crow[1:] - some.crow[:-1]
    n_of_row[row[moved]] = counts[moved]
    first = n_of_row.cumsum(0) - n_of_row
    shift = torch.zeros_like(row)
    shift[moved] = first[row[moved]] - (counts.cumsum(0) - counts)[moved]
    slot = torch.arange(len(col), device=device) + shift.repeat_interleave(counts)
    place = torch.arange(some.nnz, device=device) + (first - some.crow[:-1])[some.row]
    slot[picked] = place[some_slot[: len(picked)]]

    columns = torch.empty(int(n_of_row.sum()), dtype=torch.int64, device=device)
    kept = moved.repeat_interleave(counts).nonzero().flatten()
    columns[slot[kept]] = col[kept]
    columns[place] = some.col
    pattern = SparsityPattern(
        torch.arange(n_rows, device=device).repeat_interleave(n_of_row), columns, shape
    )
    return pattern, slot, place[some_slot[len(picked) :]]


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
