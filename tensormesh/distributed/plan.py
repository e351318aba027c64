"""`AssemblyPlan`: contributions of cells travel once, to the rank that owns their row.

Everything here depends on the mesh and not on values. It is made once per mesh; a numeric call
sends the values of off-rank entries, in one exchange, and adds.
"""

from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor

from tensormesh.assemble.scatter import scatter
from tensormesh.distributed.collectives import all_gather_ints, exchange
from tensormesh.distributed.device_mesh import DeviceMesh
from tensormesh.distributed.halo import Halo
from tensormesh.distributed.index_map import IndexMap
from tensormesh.sparse.pattern import (
    INT32_MAX,
    BlockExpansion,
    SparsityPattern,
    merge_duplicates,
)


class AssemblyPlan:
    """Where each node pair of this rank's cells goes. **Making one is collective.**

    Parameters
    ----------
    patterns
        Node pairs of each part that this process assembles, in the part's numbering.
    to_local
        For each part, the local index of its nodes in `index_map`, int64 ``[n_part]``.
    index_map
        The mesh map: ghosts are nodes of this rank's cells that others own.
    device_mesh
        1-D mesh of the ranks.

    Attributes
    ----------
    pattern
        Node pairs of this rank's rows, owned rows by local columns.
    matrix_map
        Index map of the columns: the same owned nodes; ghosts are columns of this rank's rows
        that others own, which reach beyond its cells.
    halo
        Halo of `matrix_map`.
    """

    def __init__(
        self,
        patterns: Sequence[SparsityPattern],
        to_local: Sequence[Tensor],
        index_map: IndexMap,
        device_mesh: DeviceMesh,
    ) -> None:
        self.device_mesh = device_mesh
        device = index_map.device
        pairs = list(zip(patterns, to_local, strict=True))
        row = torch.cat([nodes[p.row.to(device)] for p, nodes in pairs])
        col = torch.cat([nodes[p.col.to(device)] for p, nodes in pairs])
        self._device = device
        self._n_parts = len(pairs)
        self._own, self._sent = self._split_by_owner(row, index_map)
        received = self._exchange_pairs(row[self._sent], col[self._sent], index_map)
        col_global = index_map.local_to_global[col[self._own]]
        col_ids = index_map.original_ids[col[self._own]]
        rows = torch.cat([row[self._own], received[:, 0] - index_map.first])
        columns = torch.cat([col_global, received[:, 1]])
        ids = torch.cat([col_ids, received[:, 2]])
        self.matrix_map, local_columns = _with_ghosts(index_map, columns, ids)
        shape = (index_map.n_owned, self.matrix_map.n_local)
        self.pattern, slot = merge_duplicates(rows, local_columns, shape)
        self._received_slot = slot[self._own.numel() :]
        self._target = self._targets(slot[: self._own.numel()], len(row))
        self.halo = Halo(self.matrix_map, device_mesh)
        self._expansions: dict[int, BlockExpansion] = {}

    def _split_by_owner(self, row: Tensor, index_map: IndexMap) -> tuple[Tensor, Tensor]:
        """Entries of owned rows, and the others sorted by owner; sets the counts to send."""
        off_rank = (row >= index_map.n_owned).nonzero().flatten()
        owner = index_map.owner(index_map.local_to_global[row[off_rank]])
        sent = off_rank[torch.argsort(owner, stable=True)]
        size, rank = self.device_mesh.size(), self.device_mesh.get_local_rank()
        self._send_counts: list[int] = torch.bincount(owner, minlength=size).tolist()
        table = all_gather_ints(self._send_counts, self.device_mesh)
        self._recv_counts: list[int] = table[:, rank].tolist()
        return (row < index_map.n_owned).nonzero().flatten(), sent

    def _exchange_pairs(self, row: Tensor, col: Tensor, index_map: IndexMap) -> Tensor:
        """Row, column and original id of the column of received entries: int64 ``[k, 3]``."""
        numbers = index_map.local_to_global
        triples = torch.stack([numbers[row], numbers[col], index_map.original_ids[col]], dim=1)
        return exchange(triples, self._send_counts, self._recv_counts, self.device_mesh)

    def _targets(self, own_slot: Tensor, n_entries: int) -> Tensor:
        """Place of each node pair of the parts: its stored entry, or after these what is sent."""
        dtype = torch.int32 if self.n_places <= INT32_MAX else torch.int64
        target = torch.empty(n_entries, dtype=dtype, device=self._device)
        target[self._own] = own_slot.to(dtype)
        sent = torch.arange(self.pattern.nnz, self.n_places, device=self._device)
        target[self._sent] = sent.to(dtype)
        return target

    @property
    def n_places(self) -> int:
        """Number of stored entries and of those that are sent."""
        return self.pattern.nnz + self._sent.numel()

    def redirect(self, slots: Tensor) -> Tensor:
        """Places of what cells of the only part add to entries of its own pattern, in place."""
        for row in slots:
            row.copy_(self._target.index_select(0, row))
        return slots

    def route(self, contributions: Sequence[Tensor]) -> Tensor:
        """Sum contributions at the owners of their rows. **Collective**, differentiable.

        Parameters
        ----------
        contributions
            For each part, ``[k, nnz_part]``: ``k`` numbers a node pair. Of a process that has one
            part ``[k, n_places]``: its cells add to `redirect` ed places.

        Returns
        -------
        Tensor
            ``[k, n_places]``, of which the first are those on `pattern`.
        """
        places = contributions[0] if self._n_parts == 1 else self._joined(contributions)
        nnz = self.pattern.nnz
        received = exchange(
            places[:, nnz:].t(), self._send_counts, self._recv_counts, self.device_mesh
        )
        if places.requires_grad or received.requires_grad:
            return places.index_add(1, self._received_slot, received.t())
        return places.index_add_(1, self._received_slot, received.t())

    def _joined(self, contributions: Sequence[Tensor]) -> Tensor:
        values = torch.cat([c.to(self._device) for c in contributions], dim=1)
        return scatter(self.n_places, [(self._target.unsqueeze(0), values.unsqueeze(0))])

    def expansion(self, h: int) -> BlockExpansion:
        """How ``h x h`` blocks on `pattern` become scalar entries; made once per `h`."""
        if h not in self._expansions:
            self._expansions[h] = BlockExpansion(self.pattern, h, self.n_places)
        return self._expansions[h]

    @cached_property
    def off_rank_entries(self) -> int:
        """Number of node pairs whose values this rank sends in each numeric call."""
        return self._sent.numel()


def _with_ghosts(index_map: IndexMap, columns: Tensor, ids: Tensor) -> tuple[IndexMap, Tensor]:
    """Map with the same owned indices whose ghosts are the off-rank `columns`; local columns."""
    first, n_owned = index_map.first, index_map.n_owned
    off_rank = (columns < first) | (columns >= first + n_owned)
    ghosts, place = torch.unique(columns[off_rank], return_inverse=True)
    ghost_ids = torch.empty_like(ghosts)
    ghost_ids[place] = ids[off_rank]
    local = columns - first
    local[off_rank] = n_owned + place
    offsets, rank = index_map.offsets, index_map.rank
    return IndexMap(offsets, rank, ghosts, index_map.owned_ids, ghost_ids), local
