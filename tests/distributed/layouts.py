"""Random owners and ghosts, drawn in the driver, and the index map that ranks make of them."""

from dataclasses import dataclass

import torch
from hypothesis import strategies as st
from torch import Tensor

from tensormesh.distributed.device_mesh import DeviceMesh
from tensormesh.distributed.index_map import IndexMap
from tensormesh.distributed.numbering import number_by_rank


@dataclass(frozen=True)
class Layout:
    """Owner of each id that anybody owns, and the ids that each rank sees as ghosts, unsorted."""

    owner: dict[int, int]
    ghosts: list[list[int]]

    @property
    def size(self) -> int:
        return len(self.ghosts)

    def owned(self, rank: int) -> list[int]:
        return sorted(i for i, r in self.owner.items() if r == rank)

    @property
    def offsets(self) -> list[int]:
        offsets = [0]
        for rank in range(self.size):
            offsets.append(offsets[-1] + len(self.owned(rank)))
        return offsets

    def number(self, i: int) -> int:
        """Global index of an id: ranks in order, ids in order inside."""
        rank = self.owner[i]
        return self.offsets[rank] + self.owned(rank).index(i)

    def local_ids(self, rank: int) -> list[int]:
        return self.owned(rank) + sorted(self.ghosts[rank], key=self.number)


@st.composite
def layouts(draw: st.DrawFn, size: int) -> Layout:
    """Ranks that own nothing, ids that nobody has, ranks without ghosts: all may happen."""
    ids = draw(st.lists(st.integers(0, 30), unique=True, max_size=12))
    owners = draw(st.lists(st.integers(0, size - 1), min_size=len(ids), max_size=len(ids)))
    owner = dict(zip(ids, owners, strict=True))
    ghosts = []
    for rank in range(size):
        others = [i for i in ids if owner[i] != rank]
        seen = draw(st.lists(st.sampled_from(others), unique=True)) if others else []
        ghosts.append(seen)
    return Layout(owner, ghosts)


def index_map_of(device_mesh: DeviceMesh, layout: Layout) -> IndexMap:
    rank = device_mesh.get_local_rank()
    owners = [layout.owner[i] for i in layout.ghosts[rank]]
    return number_by_rank(
        ints(layout.owned(rank)), ints(layout.ghosts[rank]), ints(owners), device_mesh
    )


def ints(values: list[int]) -> Tensor:
    return torch.tensor(values, dtype=torch.int64)
