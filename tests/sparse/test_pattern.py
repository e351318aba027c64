"""Patterns of compressed rows say the same as those of coordinates."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from tensormesh.sparse.pattern import SparsityPattern

dense = st.tuples(st.integers(0, 6), st.integers(1, 6), st.integers(0, 2**32 - 1)).map(
    lambda n: torch.rand(n[0], n[1], generator=torch.Generator().manual_seed(n[2])) < 0.4
)


def compressed(mask: torch.Tensor) -> SparsityPattern:
    crow = torch.cat([torch.zeros(1, dtype=torch.int64), mask.sum(1).cumsum(0)])
    return SparsityPattern.of_compressed(crow.int(), mask.nonzero()[:, 1].int(), mask.shape)


@given(dense)
def test_compressed_rows_are_the_coordinates(mask):
    rows, columns = mask.nonzero().unbind(1)
    given_rows, coordinates = compressed(mask), SparsityPattern(rows, columns, mask.shape)
    for pattern in (given_rows, coordinates):
        assert torch.equal(pattern.row, rows)
        assert torch.equal(pattern.col, columns)
        assert pattern.row.dtype == pattern.col.dtype == torch.int64
        assert pattern.nnz == int(mask.sum())
        assert pattern.order is None
    assert given_rows.same_as(coordinates)
    assert given_rows.transpose.same_as(coordinates.transpose)
    for index, other in zip(given_rows.csr_indices, coordinates.csr_indices, strict=True):
        assert index.dtype == other.dtype
        assert torch.equal(index, other)


@given(dense, st.integers(1, 12))
def test_some_rows_at_a_time_are_all_of_them(mask, n_entries):
    pattern = compressed(mask)
    pieces = list(pattern.by_rows(n_entries))
    assert torch.equal(torch.cat([rows for _, rows in pieces]), mask.nonzero()[:, 0])
    ends = [0] + [some.stop for some, _ in pieces]
    assert [some.start for some, _ in pieces] == ends[:-1]
    assert ends[-1] == pattern.nnz


@given(dense, st.data())
def test_restricted_pattern_is_that_of_the_submatrix(mask, data):
    keep_rows, keep_columns = (
        torch.tensor(data.draw(st.lists(st.booleans(), min_size=n, max_size=n)), dtype=torch.bool)
        for n in mask.shape
    )
    stays = mask & keep_rows[:, None] & keep_columns
    entries = stays[mask].nonzero().flatten()
    place = keep_columns.cumsum(0) - 1
    found = compressed(mask).restricted(entries, keep_rows, place, int(keep_columns.sum()))
    assert found.same_as(compressed(mask[keep_rows][:, keep_columns]))
