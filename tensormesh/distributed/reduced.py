"""The layout of a sharded matrix without some of its unknowns."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tensormesh.distributed.collectives import all_gather_ints
from tensormesh.distributed.halo import Halo
from tensormesh.distributed.index_map import IndexMap
from tensormesh.distributed.layout import MatrixLayout
from tensormesh.distributed.numbering import rank_among
from tensormesh.distributed.vector_map import VectorMap
from tensormesh.sparse.pattern import SparsityPattern


class ShardedRestriction:
    """Makes the submatrices on some unknowns, which share a layout. **Making one is collective.**

    Nothing is gathered: each rank keeps its own rows, and ghosts that stay remain ghosts. The
    unknowns that stay are numbered in the order of the input.

    Parameters
    ----------
    layout
        Layout of the full matrix.
    keep
        Which owned unknowns stay, bool ``[n_owned]``.
    entries
        Stored entries that stay, int64.
    make
        Makes the matrix from a layout and values.
    """

    def __init__(
        self,
        layout: MatrixLayout,
        keep: Tensor,
        entries: Tensor,
        make: Callable[[MatrixLayout, Tensor], Any],
    ) -> None:
        self._make = make
        device_mesh = layout.device_mesh
        counts = all_gather_ints([int(keep.sum())], device_mesh)[:, 0]
        offsets = torch.cat([counts.new_zeros(1), counts.cumsum(0)]).to(keep.device)
        rank = layout.index_map.rank
        number = torch.full(keep.shape, -1, device=keep.device)
        number[keep] = torch.arange(int(counts[rank]), device=keep.device) + offsets[rank]
        ids = torch.full(keep.shape, -1, device=keep.device)
        n_dofs = layout.global_shape[0]
        ids[keep] = rank_among(layout.owned_dofs[keep], n_dofs, device_mesh)
        both = layout.with_ghosts(torch.stack([number, ids], dim=1))
        ghosts, ghost_ids = both[layout.n_owned :].unbind(1)
        index_map = self._index_map(offsets, rank, ghosts, ids[keep], ghost_ids)
        halo = Halo(index_map, device_mesh)
        vectors = VectorMap(index_map, halo, device_mesh, int(offsets[-1]))
        place = torch.cat([keep, ghosts >= 0]).cumsum(0) - 1
        row, col = layout.pattern.row[entries], layout.pattern.col[entries]
        shape = (index_map.n_owned, index_map.n_local)
        pattern = SparsityPattern(place[row], place[col], shape)
        unknowns, h = layout.unknowns
        origin = unknowns[keep], h
        self.layout = MatrixLayout(pattern, index_map, halo, vectors, 1, layout.uuid, origin)

    @staticmethod
    def _index_map(
        offsets: Tensor, rank: int, ghosts: Tensor, owned_ids: Tensor, ghost_ids: Tensor
    ) -> IndexMap:
        stays = ghosts >= 0  # owners number in the order of the full matrix: still sorted
        return IndexMap(offsets, rank, ghosts[stays], owned_ids, ghost_ids[stays])

    def matrix(self, values: Tensor) -> Any:
        """Submatrix with `values`."""
        return self._make(self.layout, values)
