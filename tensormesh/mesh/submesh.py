"""A part of a mesh as a mesh of its own, with the way back to the whole."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from tensormesh.mesh.adjacency import cell_node_incidence
from tensormesh.mesh.arrays import ByType, check_length
from tensormesh.mesh.facets import FacetSet, mark_facet_nodes, single_facets
from tensormesh.mesh.locality import local_order
from tensormesh.mesh.mesh import Mesh


def extract_part(
    mesh: Mesh,
    labels: Tensor,
    part: int,
    owners: dict[str, Tensor] | None = None,
    numbering: str = "increasing",
) -> Mesh:
    """Cells of one part with their nodes and all data on them.

    Lower-dimension cells follow the first top cell that has all their nodes, so each is in one
    part at most. Top types without a cell in the part are dropped, groups keep their name even
    where they are empty. The boundary of the part is what of it lies on the boundary of the whole:
    the interface to other parts is no boundary.

    Parameters
    ----------
    mesh
        The whole mesh.
    labels
        Part of each top cell, (n_cells,) int64, cells numbered through the top types in order.
    part
        Number of the part.
    owners
        From `lower_cell_owners`; None to compute it. Worth giving if several parts are extracted.
    numbering
        ``"increasing"``: nodes and cells in the order of their numbers in `mesh`. ``"local"``: in
        an order in which neighbours are near each other, where that one is far from it.

    Returns
    -------
    Mesh
        The number of each node in `mesh` is point data ``orig_nid`` (n,) int64; the number of each
        cell among those of its type is cell data ``orig_cid``. Point data ``is_boundary`` marks the
        nodes on the boundary of the whole. Coordinates stay attached to those of `mesh`.

    Raises
    ------
    ValueError
        If the length of `labels` is not the number of cells.
    """
    check_length("labels", labels, mesh.n_elements)
    labels = labels.to(mesh.device)
    owners = lower_cell_owners(mesh) if owners is None else owners
    chosen = _chosen_cells(mesh, labels, part, owners)
    nodes = _nodes_of(mesh, chosen)
    if numbering == "local":
        nodes, chosen = _in_local_order(mesh, nodes, chosen)
    to_local = torch.full((mesh.n_points,), -1, dtype=torch.int64, device=mesh.device)
    to_local[nodes] = torch.arange(len(nodes), device=mesh.device)
    near = _Neighbourhood(mesh, nodes, chosen)
    extracted = Mesh.from_arrays(
        mesh.points[nodes],
        {kind: to_local[mesh.cells[kind][index]] for kind, index in chosen.items()},
        _point_data(mesh, nodes, near),
        _cell_data(mesh, chosen),
        _cell_sets(mesh, chosen),
        mesh.arrays().field_data,
        mesh.geometry_order,
    )
    extracted._set_boundary_facets(near.boundary())
    return extracted


def lower_cell_owners(mesh: Mesh) -> dict[str, Tensor]:
    """First top cell that has all nodes of each lower-dimension cell.

    Parameters
    ----------
    mesh
        The whole mesh.

    Returns
    -------
    dict
        Lower-dimension type: (E,) int64 number of the top cell, -1 where there is none. Top cells
        are numbered through their types in order.
    """
    top = mesh.top_cells()
    lower = {kind: conn for kind, conn in mesh.cells.items() if kind not in top}
    if not lower:
        return {}
    near, numbers = _cells_at(top, torch.cat([conn.flatten() for conn in lower.values()]), mesh)
    having = cell_node_incidence(near, mesh.n_points).T.tocsr()
    owners = {}
    for kind, conn in lower.items():
        shared = cell_node_incidence({kind: conn}, mesh.n_points) @ having
        first = _first_column(shared, conn.shape[1])
        owner = np.append(numbers, -1)[first]
        owners[kind] = torch.from_numpy(owner).to(mesh.device)
    return owners


def _cells_at(top: ByType, nodes: Tensor, mesh: Mesh) -> tuple[ByType, np.ndarray]:
    """Top cells that have any of `nodes`, by type, and their numbers, (k,)."""
    marked = torch.zeros(mesh.n_points, dtype=torch.bool, device=mesh.device)
    marked[nodes] = True
    near, numbers, start = {}, [], 0
    for kind, conn in top.items():
        index = marked[conn].any(dim=1).nonzero().flatten()
        near[kind] = conn[index]
        numbers.append(index + start)
        start += len(conn)
    return near, torch.cat(numbers).cpu().numpy()


def _first_column(shared: csr_array, n_nodes: int) -> np.ndarray:
    """First column of each row whose entry is `n_nodes`, (n_rows,), -1 where there is none."""
    coo = shared.tocoo()
    all_nodes = coo.data == n_nodes
    none = shared.shape[1]
    first = np.full(shared.shape[0], none)
    np.minimum.at(first, coo.row[all_nodes], coo.col[all_nodes])
    return np.where(first == none, -1, first)


def _chosen_cells(
    mesh: Mesh, labels: Tensor, part: int, owners: dict[str, Tensor]
) -> dict[str, Tensor]:
    """Type: increasing indices of the cells of the part, in the order of the types of `mesh`."""
    top = mesh.top_cells()
    of_type = dict(zip(top, labels.split([len(conn) for conn in top.values()]), strict=True))
    mine = torch.cat([labels == part, labels.new_zeros(1, dtype=torch.bool)])
    chosen = {}
    for kind in mesh.cells:
        keep = of_type[kind] == part if kind in top else mine[owners[kind]]
        index = keep.nonzero().flatten()
        if len(index):
            chosen[kind] = index
    return chosen


def _nodes_of(mesh: Mesh, chosen: dict[str, Tensor]) -> Tensor:
    """Nodes of the chosen cells, increasing, (n,) int64."""
    used = torch.zeros(mesh.n_points, dtype=torch.bool, device=mesh.device)
    for kind, index in chosen.items():
        used[mesh.cells[kind][index]] = True
    return used.nonzero().flatten()


def _in_local_order(
    mesh: Mesh, nodes: Tensor, chosen: dict[str, Tensor]
) -> tuple[Tensor, dict[str, Tensor]]:
    """Nodes, and cells by the first of theirs, so that neighbours are near each other."""
    place = _places(nodes, mesh.n_points)
    cells = {kind: place[mesh.cells[kind][index]] for kind, index in chosen.items()}
    top = {kind: conn for kind, conn in cells.items() if kind in mesh.top_cells()}
    order = local_order(top, len(nodes), mesh.tdim)
    if order is None:
        return nodes, chosen
    place = _places(order, len(nodes))
    first = {kind: place[conn].amin(1) for kind, conn in cells.items()}
    moved = {kind: index[first[kind].argsort(stable=True)] for kind, index in chosen.items()}
    return nodes[order], moved


def _point_data(mesh: Mesh, nodes: Tensor, near: "_Neighbourhood") -> dict[str, Tensor]:
    data = {name: values[nodes] for name, values in mesh.point_data.items()}
    known = data.get("is_boundary", data.get("boundary_mask"))
    is_boundary = near.boundary_nodes() if known is None else known
    return data | {"is_boundary": is_boundary, "orig_nid": nodes}


def _cell_data(mesh: Mesh, chosen: dict[str, Tensor]) -> dict[str, ByType]:
    data = {
        name: {kind: values[chosen[kind]] for kind, values in by_type.items() if kind in chosen}
        for name, by_type in mesh.arrays().cell_data.items()
    }
    return data | {"orig_cid": dict(chosen)}


def _cell_sets(mesh: Mesh, chosen: dict[str, Tensor]) -> dict[str, ByType]:
    places = {kind: _places(index, len(mesh.cells[kind])) for kind, index in chosen.items()}
    sets = {}
    for name, by_type in mesh.cell_sets.items():
        moved = {kind: places[kind][index] for kind, index in by_type.items() if kind in places}
        sets[name] = {kind: place[place >= 0] for kind, place in moved.items()}
    return sets


class _Neighbourhood:
    """The boundary of a part: what of it lies on the boundary of the whole.

    All cells that have a facet at a node of the part are its own or in the ring around it, so a
    facet there is on the boundary of the whole exactly if one of them has it. The whole mesh need
    not be searched.
    """

    def __init__(self, mesh: Mesh, nodes: Tensor, chosen: dict[str, Tensor]) -> None:
        self._mesh, self._nodes, self._chosen = mesh, nodes, chosen

    def boundary(self) -> "FacetSet | PartBoundary":
        """Boundary facets of the part, or how they are found."""
        if self._mesh._given_boundary is not None:
            return _renumbered(self._mesh.boundary_facets(), self._chosen, self._mesh)
        return PartBoundary(self.ring, self._nodes, self._mesh.n_points)

    def boundary_nodes(self) -> Tensor:
        """Nodes of the part on the boundary of the whole, bool (n,)."""
        mesh = self._mesh
        if mesh._given_boundary is not None:
            cells, facets = mesh.top_cells(), mesh.boundary_facets()
        else:
            cells = {kind: torch.cat([self._own(kind), c]) for kind, c in self.ring.items()}
            facets = single_facets(cells, mesh.n_points)
        return mark_facet_nodes(cells, facets, mesh.n_points)[self._nodes]

    def _own(self, kind: str) -> Tensor:
        conn = self._mesh.cells[kind]
        return conn[self._chosen[kind]] if kind in self._chosen else conn[:0]

    @cached_property
    def ring(self) -> dict[str, Tensor]:
        """Cells around the part that have a node of it, by type."""
        inside = torch.zeros(self._mesh.n_points, dtype=torch.bool, device=self._mesh.device)
        inside[self._nodes] = True
        ring = {}
        for kind, conn in self._mesh.top_cells().items():
            touches = inside[conn[:, 0]]
            for column in conn.unbind(1)[1:]:
                touches |= inside[column]
            if kind in self._chosen:
                touches[self._chosen[kind]] = False
            ring[kind] = conn[touches.nonzero().flatten()]
        return ring


@dataclass(frozen=True)
class PartBoundary:
    """The rule by which the boundary facets of a part are found, when they are asked for.

    Parameters
    ----------
    ring
        Top cells of the whole around the part that have a node of it, by type, (E, B).
    nodes
        Number in the whole of each node of the part, (n,).
    n_points
        Number of points of the whole.
    """

    ring: dict[str, Tensor]
    nodes: Tensor
    n_points: int

    def __call__(self, part: Mesh) -> FacetSet:
        """Boundary facets of `part`."""
        nodes, own = self.nodes.to(part.device), part.top_cells()
        near = {kind: conn.to(part.device) for kind, conn in self.ring.items()}
        for kind, conn in own.items():
            near[kind] = torch.cat([nodes[conn], near[kind]])
        found = {}
        for kind, (cell, local) in single_facets(near, self.n_points).items():
            if kind in own:
                inside = cell < len(own[kind])
                found[kind] = (cell[inside], local[inside])
        return FacetSet(found)


def _renumbered(facets: FacetSet, chosen: dict[str, Tensor], mesh: Mesh) -> FacetSet:
    """Facets of `mesh` that belong to the chosen cells, in the numbering of these."""
    found = {}
    for kind, (cell, local) in facets.items():
        if kind in chosen:
            place = _places(chosen[kind], len(mesh.cells[kind]))[cell]
            found[kind] = (place[place >= 0], local[place >= 0])
    return FacetSet(found)


def _places(index: Tensor, n: int) -> Tensor:
    """Inverse of `index`: the place of each number below `n` in it, (n,) int64, -1 for none."""
    places = index.new_full((n,), -1)
    places[index] = torch.arange(len(index), device=index.device)
    return places
