"""The sharded product ``T^T K T``, ``T`` constant: where its entries are, and their sums."""

import torch
from torch import Tensor

from tensormesh.distributed.chains import Chains
from tensormesh.distributed.kept import Kept
from tensormesh.distributed.layout import MatrixLayout
from tensormesh.distributed.multigrid.rows import with_ghost_rows
from tensormesh.distributed.numbering import columns_of
from tensormesh.distributed.plan import AssemblyPlan
from tensormesh.distributed.vector_map import VectorMap
from tensormesh.operator.triple_product import triple_product
from tensormesh.sparse.pattern import merge_duplicates


class TiedLayout:
    """Layout of the matrices ``T^T K T`` of one layout of ``K``. **Making one is collective.**

    The rows of ``K`` on this rank are like cells: what they give to rows of other ranks goes
    there by an `AssemblyPlan`.

    Parameters
    ----------
    layout
        Layout of ``K``.
    chains, kept
        ``T``, and the numbering of its columns.

    Attributes
    ----------
    layout
        Layout of the products.
    origin
        Signature of the layout of ``K``.
    """

    def __init__(self, layout: MatrixLayout, chains: Chains, kept: Kept) -> None:
        device_mesh, device = layout.device_mesh, layout.pattern.device
        self.origin = layout.signature
        T, names = with_ghost_rows(chains.rows, chains.columns, layout.halo, layout.h)
        self._shares, row, col = triple_product(layout.pattern.row, layout.pattern.col, T)
        numbers = torch.from_numpy(names).to(device)
        columns, _ = columns_of(numbers, kept.offsets, kept.ids[kept.number >= 0], device_mesh)
        place, n_local = columns.local_of(numbers), columns.n_local
        pattern, slot = merge_duplicates(place[row], place[col], (n_local, n_local))
        local = torch.arange(n_local, device=device)
        self._plan = AssemblyPlan([pattern], [local], columns, device_mesh)
        (self._slot,) = self._plan.redirect(slot.unsqueeze(0))
        matrix_map, halo = self._plan.matrix_map, self._plan.halo
        vectors = VectorMap(matrix_map, halo, device_mesh, kept.n_global)
        self.layout = MatrixLayout(
            self._plan.pattern, matrix_map, halo, vectors, 1, layout.uuid, kept.unknowns
        )

    def values(self, values: Tensor) -> Tensor:
        """Entries of the product from those of ``K``. **Collective**, differentiable."""
        places = self._shares.sums(values, self._slot, self._plan.n_places)
        return self._plan.route([places.unsqueeze(0)])[0, : self._plan.pattern.nnz]
