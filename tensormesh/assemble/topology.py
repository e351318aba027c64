"""What all assemblers of one mesh share: coordinates, cells, and the pattern of their matrix."""

from collections.abc import Callable, Mapping
from functools import cached_property
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from tensormesh.assemble.lower_order import carriers
from tensormesh.assemble.pairs import node_pairs
from tensormesh.element.cell_type import cell_type
from tensormesh.mesh.mesh import Mesh
from tensormesh.sparse.pattern import INT32_MAX, BlockExpansion, SparsityPattern

# Unknowns of a node: how many, or for each of them the order of its field.
Unknowns = int | tuple[int, ...]


def present_unknowns(orders: tuple[int, ...], carriers: Callable[[int], Tensor]) -> Tensor:
    """Which unknowns there are, bool ``[n * h]``.

    Parameters
    ----------
    orders
        Order of the field of each of the ``h`` unknowns of a node.
    carriers
        From an order to the nodes that carry such fields, bool ``[n]``.
    """
    by_order = {order: carriers(order) for order in set(orders)}
    return torch.stack([by_order[order] for order in orders], dim=1).flatten()


class Connectivity:
    """What follows from the cells alone, made when it is first asked for.

    Parameters
    ----------
    n_points
        Number of mesh points.
    cells
        Cell type -> int64 ``[E, B]``, in file node order.
    ids
        Number of each point in a whole mesh of which this is a part, int64 ``[n_points]``; by
        default their own.
    """

    def __init__(
        self, n_points: int, cells: Mapping[str, Tensor], ids: Tensor | None = None
    ) -> None:
        self.n_points = n_points
        self.cells = dict(cells)
        self.ids = ids
        self._expansions: dict[Unknowns, BlockExpansion] = {}
        self._carriers: dict[int, Tensor] = {}

    @cached_property
    def pairs(self) -> tuple[SparsityPattern, dict[str, Tensor]]:
        """Pairs of nodes that share a cell, and the stored entry of each pair of each cell."""
        pattern, slots = node_pairs(list(self._narrow.values()), self.n_points)
        return pattern, dict(zip(self.columns, slots, strict=True))

    @property
    def n_slots(self) -> int:
        """Number of places that `slots` name."""
        return self.pairs[0].nnz

    @property
    def slots(self) -> dict[str, Tensor]:
        """Cell type -> place of each (test node, trial node) and cell, ``[B * B, E]``."""
        return self.pairs[1]

    def hand_over_pairs(self) -> tuple[SparsityPattern, dict[str, Tensor]]:
        """`pairs`, for the caller to keep and to change; they are made anew when asked for."""
        found = self.pairs
        del self.pairs
        return found

    @cached_property
    def columns(self) -> dict[str, Tensor]:
        """Cell type -> nodes, int32 ``[B, E]`` where it fits: cells are the last axis."""
        return {name: cell.t().contiguous() for name, cell in self._narrow.items()}

    @property
    def _narrow(self) -> dict[str, Tensor]:
        dtype = torch.int32 if self.n_points <= INT32_MAX else torch.int64
        return {name: cell.to(dtype) for name, cell in self.cells.items()}

    def carriers(self, order: int) -> Tensor:
        """Which nodes carry fields of an order, bool ``[n_points]``; made once for each."""
        if order not in self._carriers:
            device = next(iter(self.cells.values())).device
            own = torch.arange(self.n_points, device=device) if self.ids is None else self.ids
            self._carriers[order] = carriers(self.cells, order, own)
        return self._carriers[order]

    def expansion(self, unknowns: Unknowns) -> BlockExpansion:
        """How blocks on the node pairs become scalar entries; made once for such unknowns."""
        if unknowns not in self._expansions:
            if isinstance(unknowns, int):
                made = BlockExpansion(self.pairs[0], unknowns)
            else:
                present = present_unknowns(unknowns, self.carriers)
                made = BlockExpansion(self.pairs[0], len(unknowns), present=(present, present))
            self._expansions[unknowns] = made
        return self._expansions[unknowns]


class Redirected(Connectivity):
    """The same cells, which add to other places than the entries of the node pairs.

    Parameters
    ----------
    base
        The cells.
    slots, n_slots
        Cell type -> place of each (test node, trial node) and cell, ``[B * B, E]``, and how many
        places there are.
    """

    def __init__(self, base: Connectivity, slots: dict[str, Tensor], n_slots: int) -> None:
        super().__init__(base.n_points, base.cells, base.ids)
        self._base, self._slots, self._n_slots = base, slots, n_slots

    @property
    def n_slots(self) -> int:
        """Number of places that `slots` name."""
        return self._n_slots

    @property
    def slots(self) -> dict[str, Tensor]:
        """Cell type -> place of each (test node, trial node) and cell, ``[B * B, E]``."""
        return self._slots

    @property
    def pairs(self) -> tuple[SparsityPattern, dict[str, Tensor]]:
        """Those of the cells."""
        return self._base.pairs

    @property
    def columns(self) -> dict[str, Tensor]:
        """Those of the cells."""
        return self._base.columns


class Topology:
    """Points and top-dimension cells. Several sets of points may share what the cells give.

    Parameters
    ----------
    points
        ``[n, D]``.
    cells
        Cell type -> int64 ``[E, B]``, in file node order.
    geometry_order
        1: the vertices of a cell make its geometry, whatever its order. None: all its nodes.
    ids
        As of `Connectivity`.
    """

    def __init__(
        self,
        points: Tensor,
        cells: Mapping[str, Tensor],
        geometry_order: int | None = None,
        ids: Tensor | None = None,
    ) -> None:
        self.points = points
        self.geometry_order = geometry_order
        self._connectivity = Connectivity(points.shape[0], cells, ids)

    @classmethod
    def of(cls, mesh: Mesh) -> "Topology":
        """Topology of `mesh` as it is now; the symbolic part is made once for the same cells."""
        if not isinstance(mesh, Mesh):
            raise TypeError(
                f"mesh must be a Mesh, got {type(mesh).__name__}; for a DistributedMesh, decorate "
                "the class with tensormesh.distributed.distributed"
            )
        cells = mesh.top_cells()
        if not cells:
            raise ValueError("the mesh has no cells to integrate on: it holds points only")
        ids = mesh.point_data["orig_nid"] if "orig_nid" in mesh.point_data else None
        topology = cls(mesh.points, cells, mesh.geometry_order, ids)
        key = (mesh.n_points, [(name, cell, _version(cell)) for name, cell in cells.items()])
        known = _CACHE.get(mesh)
        if known is not None and _same(known[0], key):
            topology._connectivity = known[1]
        else:
            _CACHE[mesh] = (key, topology._connectivity)
        return topology

    @property
    def connectivity(self) -> Connectivity:
        """What follows from the cells alone."""
        return self._connectivity

    def over(self, connectivity: Connectivity) -> "Topology":
        """Topology with the same points over another connectivity of the same cells."""
        made = self.moved(self.points)
        made._connectivity = connectivity
        return made

    def moved(self, points: Tensor) -> "Topology":
        """Topology of the same cells on other `points`."""
        made = Topology.__new__(Topology)
        made.points, made._connectivity = points, self._connectivity
        made.geometry_order = self.geometry_order
        return made

    @property
    def cells(self) -> dict[str, Tensor]:
        """Cell type -> int64 ``[E, B]``."""
        return self._connectivity.cells

    @property
    def n_points(self) -> int:
        """Number of mesh points."""
        return self.points.shape[0]

    @property
    def n_cells(self) -> int:
        """Number of cells of all types."""
        return sum(cell.shape[0] for cell in self.cells.values())

    @property
    def pattern(self) -> SparsityPattern:
        """Pairs of nodes that share a cell, sorted by row then column."""
        return self._connectivity.pairs[0]

    @property
    def columns(self) -> dict[str, Tensor]:
        """Cell type -> nodes of the cells, int32 ``[B, E]`` where it fits."""
        return self._connectivity.columns

    def map_columns(self, kind: str) -> Tensor:
        """Nodes that make the geometry of the cells, ``[B, E]``: all, or the vertices."""
        columns = self.columns[kind]
        return columns if self.geometry_order is None else columns[: cell_type(kind).n_vertices]

    @property
    def slots(self) -> dict[str, Tensor]:
        """Cell type -> place of each (test node, trial node) and cell, ``[B * B, E]``."""
        return self._connectivity.slots

    @property
    def n_slots(self) -> int:
        """Number of places that `slots` name."""
        return self._connectivity.n_slots

    def expansion(self, unknowns: Unknowns) -> BlockExpansion:
        """How blocks on the node pairs become scalar entries; made once for such unknowns."""
        return self._connectivity.expansion(unknowns)

    def carriers(self, order: int) -> Tensor:
        """Which nodes carry fields of an order, bool ``[n_points]``."""
        return self._connectivity.carriers(order)

    def map(self, convert: Callable[[Tensor], Tensor]) -> "Topology":
        """Topology with converted tensors, as `torch.nn.Module` moves its own."""
        points, cells = convert(self.points), {k: convert(c) for k, c in self.cells.items()}
        if all(cells[name] is cell for name, cell in self.cells.items()):
            return self.moved(points)
        ids = self._connectivity.ids
        return Topology(points, cells, self.geometry_order, None if ids is None else convert(ids))


_Key = tuple[int, list[tuple[str, Tensor, int]]]
_CACHE: "WeakKeyDictionary[Mesh, tuple[_Key, Connectivity]]" = WeakKeyDictionary()


def _version(cell: Tensor) -> int:
    # A tensor made under inference_mode counts no versions.
    return -1 if cell.is_inference() else cell._version


def _same(a: _Key, b: _Key) -> bool:
    return (
        a[0] == b[0]
        and len(a[1]) == len(b[1])
        and all(
            x[0] == y[0] and x[1] is y[1] and x[2] == y[2] for x, y in zip(a[1], b[1], strict=True)
        )
    )
