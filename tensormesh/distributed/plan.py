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
from tensormesh.distributed.rows import merge_rows, spans
from tensormesh.sparse.pattern import (
    INT32_MAX,
    BlockExpansion,
    SparsityPattern,
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
        self._device = device = index_map.device
        self._n_parts, n_owned = len(patterns), index_map.n_owned
        on_device = [pattern.to(device) for pattern in patterns]
        counts = torch.cat([p.crow[1:] - p.crow[:-1] for p in on_device])
        row = torch.cat(list(to_local))
        col = torch.cat([_renumbered(p, x) for p, x in zip(on_device, to_local, strict=True)])
        sent_row = self._order_by_owner(counts, row, index_map)
        received = self._exchange_pairs(sent_row, col[self._sent], index_map)
        is_ghost = col >= n_owned
        is_ghost[self._sent] = False
        at = is_ghost.nonzero().flatten()
        ghost = col[at] - n_owned
        self.matrix_map, new_ghost = _with_ghosts(index_map, ghost, received[:, 1:])
        col[at] = new_ghost[ghost].to(col.dtype)
        extra = received[:, 0] - index_map.first, self.matrix_map.local_of(received[:, 1])
        shape = (n_owned, self.matrix_map.n_local)
        self.pattern, slot, self._received_slot = merge_rows(counts, row, col, extra, shape)
        dtype = torch.int32 if self.n_places <= INT32_MAX else torch.int64
        self._target = slot.to(dtype)
        sent = torch.arange(self.pattern.nnz, self.n_places, device=device)
        self._target[self._sent] = sent.to(dtype)
        self.halo = Halo(self.matrix_map, device_mesh)

    def _order_by_owner(self, counts: Tensor, row: Tensor, index_map: IndexMap) -> Tensor:
        """Local rows of the entries to send, sorted by owner; sets which, and their counts."""
        off_rank = row >= index_map.n_owned
        entries = spans((counts.cumsum(0) - counts)[off_rank], counts[off_rank])
        rows = row[off_rank].repeat_interleave(counts[off_rank])
        owner = index_map.owner(index_map.local_to_global[rows])
        order = torch.argsort(owner, stable=True)
        self._sent = entries[order]
        size, rank = self.device_mesh.size(), self.device_mesh.get_local_rank()
        self._send_counts: list[int] = torch.bincount(owner, minlength=size).tolist()
        table = all_gather_ints(self._send_counts, self.device_mesh)
        self._recv_counts: list[int] = table[:, rank].tolist()
        return rows[order]

    def _exchange_pairs(self, row: Tensor, col: Tensor, index_map: IndexMap) -> Tensor:
        """Row, column and original id of the column of received entries: int64 ``[k, 3]``."""
        numbers = index_map.local_to_global
        triples = torch.stack([numbers[row], numbers[col], index_map.original_ids[col]], dim=1)
        return exchange(triples, self._send_counts, self._recv_counts, self.device_mesh)

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

    def expansion(self, h: int, present: Tensor | None = None) -> BlockExpansion:
        """How ``h x h`` blocks on `pattern` become scalar entries.

        Parameters
        ----------
        h
            Size of a block.
        present
            Which unknowns of owned nodes there are, bool ``[n_owned * h]``; by default all.
            **Collective** where given.
        """
        if present is None:
            return BlockExpansion(self.pattern, h, self.n_places)
        by_node = present.view(-1, h).to(torch.uint8)
        columns = self.halo.scatter_forward(by_node).bool().flatten()
        return BlockExpansion(self.pattern, h, self.n_places, (present, columns))

    @cached_property
    def off_rank_entries(self) -> int:
        """Number of node pairs whose values this rank sends in each numeric call."""
        return self._sent.numel()


def _renumbered(pattern: SparsityPattern, numbers: Tensor) -> Tensor:
    """Columns of the entries of a pattern by other numbers, in the dtype of its indices."""
    col = pattern.csr_indices[1]
    return numbers.to(col.dtype).index_select(0, col)


def _with_ghosts(index_map: IndexMap, col: Tensor, received: Tensor) -> tuple[IndexMap, Tensor]:
    """Map with the same owned indices, whose ghosts are the off-rank columns of the rows.

    Parameters
    ----------
    index_map
        The mesh map.
    col
        Ghosts there that are columns of owned rows, with repetitions.
    received
        Number and original id of columns that other ranks name, int64 ``[k, 2]``.

    Returns
    -------
    matrix_map, place
        The map, and the local index in it of each ghost of `index_map`, where it is one.
    """
    first, n_owned = index_map.first, index_map.n_owned
    used = torch.zeros(index_map.n_ghosts, dtype=torch.bool, device=col.device)
    used[col] = True
    beyond = received[(received[:, 0] < first) | (received[:, 0] >= first + n_owned)]
    numbers = torch.cat([index_map.ghosts[used], beyond[:, 0]])
    ghosts, place = torch.unique(numbers, return_inverse=True)
    ghost_ids = torch.empty_like(ghosts)
    ghost_ids[place] = torch.cat([index_map.ghost_ids[used], beyond[:, 1]])
    offsets, rank = index_map.offsets, index_map.rank
    matrix_map = IndexMap(offsets, rank, ghosts, index_map.owned_ids, ghost_ids)
    return matrix_map, n_owned + torch.searchsorted(ghosts, index_map.ghosts)
