"""The layout of a sharded matrix without some of its unknowns."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tensormesh.distributed.halo import Halo
from tensormesh.distributed.index_map import IndexMap
from tensormesh.distributed.kept import Kept
from tensormesh.distributed.layout import MatrixLayout
from tensormesh.distributed.vector_map import VectorMap


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
        device_mesh, kept = layout.device_mesh, Kept(layout, keep)
        both = layout.with_ghosts(torch.stack([kept.number, kept.ids], dim=1))
        ghosts, ghost_ids = both[layout.n_owned :].unbind(1)
        stays = ghosts >= 0  # owners number in the order of the full matrix: still sorted
        index_map = IndexMap(
            kept.offsets, layout.index_map.rank, ghosts[stays], kept.ids[keep], ghost_ids[stays]
        )
        halo = Halo(index_map, device_mesh)
        vectors = VectorMap(index_map, halo, device_mesh, kept.n_global)
        place = torch.cat([keep, stays]).cumsum(0) - 1
        pattern = layout.pattern.restricted(entries, keep, place, index_map.n_local)
        self.layout = MatrixLayout(pattern, index_map, halo, vectors, 1, layout.uuid, kept.unknowns)

    def matrix(self, values: Tensor) -> Any:
        """Submatrix with `values`."""
        return self._make(self.layout, values)
