"""`MatrixLayout`: what all row-sharded matrices of one pattern share."""

from collections.abc import Hashable
from functools import cached_property

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh as TorchDeviceMesh
from torch_sla.distributed import Partition

from tensormesh.distributed.device_mesh import DeviceMesh
from tensormesh.distributed.ghost_block import GhostBlock
from tensormesh.distributed.halo import Halo
from tensormesh.distributed.index_map import IndexMap
from tensormesh.distributed.vector_map import VectorMap
from tensormesh.sparse.pattern import SparsityPattern


class MatrixLayout:
    """Rows of a sharded matrix on this rank, and how its vectors are numbered and moved.

    Parameters
    ----------
    pattern
        Scalar entries: owned rows by local columns (owned, then ghosts), sorted by row.
    index_map, halo
        Map of the columns, `h` unknowns an index, and its halo.
    vectors
        Vectors over the same owned indices.
    h
        Unknowns an index.
    uuid
        63-bit identity of the partition build, the same on every rank.
    unknowns
        Index and component, ``index * h + component``, of each owned unknown in the layout that
        this one restricts, and that layout's ``h``; None where nothing was left out.
    """

    def __init__(
        self,
        pattern: SparsityPattern,
        index_map: IndexMap,
        halo: Halo,
        vectors: VectorMap,
        h: int,
        uuid: int,
        unknowns: tuple[Tensor, int] | None = None,
    ) -> None:
        self.pattern, self.index_map, self.halo = pattern, index_map, halo
        self.vectors, self.h, self.uuid = vectors, h, uuid
        self._unknowns = unknowns

    @property
    def device_mesh(self) -> DeviceMesh:
        """The ranks that share the matrix."""
        return self.vectors.device_mesh

    @property
    def n_owned(self) -> int:
        """Number of rows on this rank."""
        return self.index_map.n_owned * self.h

    @property
    def n_local(self) -> int:
        """Number of columns that rows on this rank can name."""
        return self.index_map.n_local * self.h

    @property
    def global_shape(self) -> tuple[int, int]:
        """Shape of the whole matrix."""
        n = self.vectors.n_global * self.h
        return (n, n)

    @cached_property
    def signature(self) -> Hashable:
        """Local sparsity by content, and the partition build."""
        return (self.pattern.signature, self.uuid)

    def with_uuid(self, uuid: int) -> "MatrixLayout":
        """The same layout under another identity."""
        return MatrixLayout(
            self.pattern, self.index_map, self.halo, self.vectors, self.h, uuid, self._unknowns
        )

    @cached_property
    def unknowns(self) -> tuple[Tensor, int]:
        """Which node each owned unknown is at, and which component of how many it is.

        int64 ``[n_owned]``, ``node * h + component``, and ``h``: numbers of the layout that the
        nodes came with, also where a restriction has removed some of their components.
        """
        if self._unknowns is not None:
            return self._unknowns
        return torch.arange(self.n_owned, device=self.pattern.device), self.h

    # -- columns ---------------------------------------------------------------------------

    def rows(self, x: Tensor) -> Tensor:
        """View ``[n * h, ...]`` as ``[n, h, ...]``, one row an index."""
        return x.reshape(-1, self.h, *x.shape[1:])

    def with_ghosts(self, owned: Tensor) -> Tensor:
        """Owned slice ``[n_owned, ...]`` extended to all local columns. **Collective.**"""
        if owned.dtype == torch.bool:
            return self.with_ghosts(owned.to(torch.uint8)).bool()
        return self.halo.scatter_forward(self.rows(owned)).flatten(0, 1)

    @cached_property
    def ghost_block(self) -> GhostBlock | None:
        """Owned x ghost entries; None where this rank has no ghosts."""
        return None if self.n_local == self.n_owned else GhostBlock(self.pattern, self.n_owned)

    @cached_property
    def diagonal_entries(self) -> Tensor:
        """Stored entry of each owned diagonal element, int64 ``[n_owned]``; -1 where none is."""
        col = self.pattern.csr_indices[1]
        entries = torch.full((self.n_owned,), -1, device=col.device)
        for some, rows in self.pattern.by_rows():
            on = (rows == col[some]).nonzero().flatten()
            entries[rows[on]] = on + some.start
        return entries

    # -- torch-sla's view ------------------------------------------------------------------

    @cached_property
    def owned_dofs(self) -> Tensor:
        """Unknowns that this rank owns, in the input's numbering, int64 ``[n_owned]``."""
        return self._dofs(self.index_map.owned_ids)

    def _dofs(self, ids: Tensor) -> Tensor:
        return (ids.unsqueeze(1) * self.h + torch.arange(self.h, device=ids.device)).flatten()

    @cached_property
    def torch_mesh(self) -> TorchDeviceMesh | None:
        """The device mesh as torch-sla takes it; None in a process without a job."""
        return self.device_mesh.to_torch() if dist.is_initialized() else None

    @cached_property
    def partition(self) -> Partition:
        """torch-sla's description of this rank, in unknowns and the input's numbering.

        Its ``global_to_local``, of global length, is left empty: nothing here needs it.
        """
        device = self.pattern.device
        neighbours = self.halo.neighbours
        sent = self._dofs(self.halo.send_index).split([c * self.h for c in self.halo.send_counts])
        ghosts = torch.arange(self.n_owned, self.n_local, device=device)
        received = ghosts.split([c * self.h for c in self.halo.recv_counts])
        local = self._dofs(self.index_map.original_ids)
        return Partition(
            partition_id=self.index_map.rank,
            local_nodes=local.clone(),  # its file format refuses tensors that share memory
            owned_nodes=self.owned_dofs,
            halo_nodes=self._dofs(self.index_map.ghost_ids),
            neighbor_partitions=neighbours,
            send_indices={r: sent[r] for r in neighbours},
            recv_indices={r: received[r] for r in neighbours},
            global_to_local=local.new_zeros(0),
            local_to_global=local,
        )
