"""What all assemblers of one mesh share: coordinates, cells, and the pattern of their matrix."""

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from tensormesh.sparse.pattern import BlockExpansion, SparsityPattern, merge_duplicates

if TYPE_CHECKING:
    from tensormesh.mesh.mesh import Mesh


class Topology:
    """Points and top-dimension cells, and everything that follows from the cells alone.

    Parameters
    ----------
    points
        ``[n, D]``.
    cells
        Cell type -> int64 ``[E, B]``, in file node order.
    """

    def __init__(self, points: Tensor, cells: Mapping[str, Tensor]) -> None:
        self.points = points
        self.cells = dict(cells)
        self._expansions: dict[int, BlockExpansion] = {}

    @classmethod
    def of(cls, mesh: "Mesh") -> "Topology":
        """Topology of `mesh`: the same object while its cells stay the same, so made once."""
        cells = mesh.top_cells()
        if not cells:
            raise ValueError("the mesh has no cells to integrate on: it holds points only")
        key = [(name, cell, cell._version) for name, cell in cells.items()]
        known = _CACHE.get(mesh)
        if known is not None and _same(known[0], key):
            topology = known[1]
            topology.points = mesh.points
            return topology
        topology = cls(mesh.points, cells)
        _CACHE[mesh] = (key, topology)
        return topology

    @property
    def n_points(self) -> int:
        """Number of mesh points."""
        return self.points.shape[0]

    @property
    def n_cells(self) -> int:
        """Number of cells of all types."""
        return sum(cell.shape[0] for cell in self.cells.values())

    @cached_property
    def _pairs(self) -> tuple[SparsityPattern, dict[str, Tensor]]:
        rows = [cell.unsqueeze(2).expand(-1, -1, cell.shape[1]) for cell in self.cells.values()]
        row = torch.cat([r.reshape(-1) for r in rows])
        col = torch.cat([r.transpose(1, 2).reshape(-1) for r in rows])
        pattern, slot = merge_duplicates(row, col, (self.n_points, self.n_points))
        slots = slot.split([r.numel() for r in rows])
        return pattern, {
            name: s.view(r.shape) for name, s, r in zip(self.cells, slots, rows, strict=True)
        }

    @property
    def pattern(self) -> SparsityPattern:
        """Pairs of nodes that share a cell, sorted by row then column."""
        return self._pairs[0]

    @property
    def slots(self) -> dict[str, Tensor]:
        """Cell type -> stored entry of each (cell, test node, trial node), int64 ``[E, B, B]``."""
        return self._pairs[1]

    def expansion(self, h: int) -> BlockExpansion:
        """How ``h x h`` blocks on the node pairs become scalar entries; made once per `h`."""
        if h not in self._expansions:
            self._expansions[h] = BlockExpansion(self.pattern, h)
        return self._expansions[h]

    def map(self, convert: Callable[[Tensor], Tensor]) -> "Topology":
        """Topology with converted tensors, as `torch.nn.Module` moves its own."""
        return Topology(convert(self.points), {k: convert(c) for k, c in self.cells.items()})


_Key = list[tuple[str, Tensor, int]]
_CACHE: "WeakKeyDictionary[Mesh, tuple[_Key, Topology]]" = WeakKeyDictionary()


def _same(a: _Key, b: _Key) -> bool:
    return len(a) == len(b) and all(
        x[0] == y[0] and x[1] is y[1] and x[2] == y[2] for x, y in zip(a, b, strict=True)
    )
