"""Index maps and their numbering against lists in one process."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tensormesh.distributed.device_mesh import DeviceMesh
from tensormesh.distributed.index_map import IndexMap
from tensormesh.distributed.numbering import rank_among
from tests.distributed.layouts import Layout, index_map_of, ints, layouts
from tests.rank_pool import RankPool

SIZES = [1, 2, 3, 4]


def facts(device_mesh: DeviceMesh, layout: Layout) -> dict[str, Any]:
    m = index_map_of(device_mesh, layout)
    return {
        "offsets": m.offsets.tolist(),
        "owned": m.owned_ids.tolist(),
        "ghost_ids": m.ghost_ids.tolist(),
        "ghosts": m.ghosts.tolist(),
        "ghost_owners": m.owner(m.ghosts).tolist(),
        "local_to_global": m.local_to_global.tolist(),
        "local": m.local(m.original_ids.flip(0)).tolist(),
        "sizes": (m.n_owned, m.n_ghosts, m.n_local, m.n_global, m.first, m.rank),
    }


@pytest.mark.parametrize("n", SIZES)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_numbering_is_contiguous_by_rank(ranks: RankPool, n: int, data: st.DataObject) -> None:
    layout = data.draw(layouts(n))
    for rank, found in enumerate(ranks(n, facts, layout)):
        local = layout.local_ids(rank)
        n_owned = len(layout.owned(rank))
        assert found["offsets"] == layout.offsets
        assert found["owned"] == local[:n_owned]
        assert found["ghost_ids"] == local[n_owned:]
        assert found["local_to_global"] == [layout.number(i) for i in local]
        assert found["ghosts"] == sorted(found["ghosts"])
        assert found["ghost_owners"] == sorted(layout.owner[i] for i in layout.ghosts[rank])
        assert found["local"] == list(range(len(local)))[::-1]
        first, n_global = layout.offsets[rank], layout.offsets[-1]
        n_ghosts = len(layout.ghosts[rank])
        assert found["sizes"] == (n_owned, n_ghosts, len(local), n_global, first, rank)


def test_an_id_that_is_neither_owned_nor_ghost_is_refused() -> None:
    index_map = IndexMap(ints([0, 2]), 0, ints([]), ints([4, 7]), ints([]))
    assert index_map.local(ints([7, 4, 7])).tolist() == [1, 0, 1]
    for wrong in (3, 5, 9):
        with pytest.raises(ValueError, match="ids"):
            index_map.local(ints([4, wrong]))
    empty = IndexMap(ints([0, 0]), 0, ints([]), ints([]), ints([]))
    assert empty.local(ints([])).numel() == 0
    with pytest.raises(ValueError, match="ids"):
        empty.local(ints([0]))


def ranked(device_mesh: DeviceMesh, ids: list[list[int]], id_range: int) -> Tensor:
    return rank_among(ints(ids[device_mesh.get_local_rank()]), id_range, device_mesh)


@pytest.mark.parametrize("n", SIZES)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_rank_among_is_the_place_in_the_sorted_union(
    ranks: RankPool, n: int, data: st.DataObject
) -> None:
    union = data.draw(st.lists(st.integers(0, 40), unique=True, max_size=15))
    holders = data.draw(st.lists(st.integers(0, n - 1), min_size=len(union), max_size=len(union)))
    ids = [[i for i, r in zip(union, holders, strict=True) if r == rank] for rank in range(n)]
    id_range = max(union, default=0) + data.draw(st.integers(1, 5))
    order = np.sort(np.array(union, np.int64))
    for mine, found in zip(ids, ranks(n, ranked, ids, id_range), strict=True):
        assert found.dtype == torch.int64
        assert found.tolist() == np.searchsorted(order, np.array(mine, np.int64)).tolist()
