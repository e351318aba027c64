"""Rows that are moved as they are, and rows that are merged."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tensormesh.distributed.rows import merge_rows

N_ROWS, N_COLS = 5, 7
block = st.tuples(
    st.integers(0, N_ROWS + 1),  # beyond the last row: of another rank
    st.lists(st.integers(0, N_COLS - 1), unique=True, max_size=4),
)
entry = st.tuples(st.integers(0, N_ROWS - 1), st.integers(0, N_COLS - 1))


def ints(values: list[int]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int64)


@settings(max_examples=300, deadline=None)
@given(st.lists(block, max_size=8), st.lists(entry, max_size=4))
def test_sums_land_where_a_dense_matrix_has_them(blocks, extra):
    counts, row = ints([len(c) for _, c in blocks]), ints([r for r, _ in blocks])
    col = ints([c for _, columns in blocks for c in columns])
    extra_row, extra_col = ints([r for r, _ in extra]), ints([c for _, c in extra])
    pattern, slot, extra_slot = merge_rows(
        counts, row, col, (extra_row, extra_col), (N_ROWS, N_COLS)
    )
    rows = torch.cat([row.repeat_interleave(counts), extra_row])
    here = rows < N_ROWS
    columns, slots = torch.cat([col, extra_col])[here], torch.cat([slot, extra_slot])[here]
    values = torch.arange(1.0, 1 + len(columns))

    dense = torch.zeros(N_ROWS, N_COLS)
    dense.index_put_((rows[here], columns), values, accumulate=True)
    summed = torch.zeros(pattern.nnz).index_add_(0, slots, values)
    found = torch.zeros(N_ROWS, N_COLS)
    found[pattern.row, pattern.col] = summed
    assert torch.equal(found, dense)
    key = pattern.row * N_COLS + pattern.col
    assert bool((key[1:] > key[:-1]).all())  # sorted, each once
