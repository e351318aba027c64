"""Facets of the top-dimension cells: which are on the boundary, which belong to a group of cells.

Facets are compared by their vertices, whatever the types of the cells, so a wedge and a hexahedron
meet in one quadrilateral. Where a hexahedron meets two tetrahedra with no pyramid between, nothing
is shared, and both sides count as boundary.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tensormesh.element.cell_type import cell_type
from tensormesh.element.facet import local_facets
from tensormesh.mesh.row_keys import column_keys, sorted_values

if TYPE_CHECKING:
    from tensormesh.mesh.mesh import Mesh


@dataclass(frozen=True)
class FacetSet:
    """Some facets of a mesh, each as a side of one cell.

    Attributes
    ----------
    of
        Top-dimension cell type: (cell, local facet), two int64 tensors (F,). The first indexes the
        cells of that type, the second ``local_facets(type)``. Every top type is a key.
    """

    of: dict[str, tuple[Tensor, Tensor]]

    def __len__(self) -> int:
        return sum(len(cell) for cell, _ in self.of.values())

    def __iter__(self) -> Iterator[str]:
        return iter(self.of)

    def __getitem__(self, kind: str) -> tuple[Tensor, Tensor]:
        return self.of[kind]

    def items(self) -> Iterator[tuple[str, tuple[Tensor, Tensor]]]:
        """Pairs of cell type and (cell, local facet)."""
        return iter(self.of.items())

    def to(self, device: torch.device) -> "FacetSet":
        """Move the indices to `device`."""
        return FacetSet({k: (c.to(device), f.to(device)) for k, (c, f) in self.of.items()})


def boundary_facets(mesh: "Mesh") -> FacetSet:
    """Facets that exactly one top-dimension cell of `mesh` has, in order of cell and local facet.

    Raises
    ------
    ValueError
        If the mesh has no cells, or only vertices.
    """
    return single_facets(_cells_with_facets(mesh), mesh.n_points)


def single_facets(cells: dict[str, Tensor], n_points: int) -> FacetSet:
    """Facets that exactly one of some cells has.

    Parameters
    ----------
    cells
        Type: connectivity (E, B), all of one dimension.
    n_points
        Bound of the node numbers.
    """
    found = []
    for n_vertices in _facet_sizes(cells):
        sides = _Sides(cells, n_vertices)
        keys = column_keys(sides.vertices(), n_points)
        found.append(sides.locate(_occurring_once(keys)))
    return _facet_set(cells, found)


def facets_of_cells(mesh: "Mesh", cells: dict[str, Tensor]) -> FacetSet:
    """Find the sides of top-dimension cells that lower-dimension cells of `mesh` lie on.

    Parameters
    ----------
    mesh
        The mesh.
    cells
        Type: int64 indices into the cells of that type, one dimension below the top, for instance
        ``mesh.group("inlet")``.

    Returns
    -------
    FacetSet
        One facet for each of `cells`. Where two cells share it, the first in the order of the mesh.

    Raises
    ------
    ValueError
        If a type has another dimension, or no top-dimension cell has the facet.
    KeyError
        If the mesh has no cells of a type.
    """
    top = _cells_with_facets(mesh)
    _check_facet_dimension(mesh, cells)
    found = []
    for n_vertices in sorted({cell_type(kind).n_vertices for kind in cells}):
        sides = _Sides(top, n_vertices)
        kinds = [kind for kind in cells if cell_type(kind).n_vertices == n_vertices]
        wanted = [mesh.cells[kind][cells[kind], :n_vertices] for kind in kinds]
        position = _first_positions(sides.vertices(), torch.cat(wanted), mesh.n_points)
        for kind, of_kind in zip(kinds, position.split([len(w) for w in wanted]), strict=True):
            _check_found(kind, cells[kind], of_kind)
        found.append(sides.locate(position))
    return _facet_set(top, found)


def facet_nodes_mask(mesh: "Mesh", facets: FacetSet) -> Tensor:
    """Nodes of `mesh` that lie on one of `facets`; see `mark_facet_nodes`."""
    return mark_facet_nodes(mesh.top_cells(), facets, mesh.n_points)


def mark_facet_nodes(cells: dict[str, Tensor], facets: FacetSet, n_points: int) -> Tensor:
    """Nodes that lie on one of `facets` of `cells`, the mid-nodes of edges and faces included.

    Returns
    -------
    Tensor
        (n,), bool.
    """
    device = next(iter(cells.values())).device
    mask = torch.zeros(n_points, dtype=torch.bool, device=device)
    for kind, (cell, local) in facets.items():
        for number, facet in enumerate(local_facets(kind)):
            mask[cells[kind][cell[local == number]][:, list(facet.nodes)]] = True
    return mask


class _Sides:
    """All facets with `n_vertices` vertices, cell by cell, one cell type after the other."""

    def __init__(self, top: dict[str, Tensor], n_vertices: int) -> None:
        self.n_vertices = n_vertices
        self.cells = top
        self.local = {
            kind: [i for i, f in enumerate(local_facets(kind)) if len(f.vertices) == n_vertices]
            for kind in top
        }

    def vertices(self) -> list[Tensor]:
        """First, second, ... vertex of each facet in increasing order, (F,) each."""
        nothing = next(iter(self.cells.values())).new_zeros(0)
        of_kinds = [[nothing] * self.n_vertices]
        for kind, cells in self.cells.items():
            if not self.local[kind]:
                continue
            nodes = cells.t().contiguous()
            facets = [local_facets(kind)[i].vertices for i in self.local[kind]]
            in_order = [_increasing([nodes[v] for v in vertices]) for vertices in facets]
            of_kinds.append([torch.stack(c, dim=1).flatten() for c in zip(*in_order, strict=True)])
        return [torch.cat(columns) for columns in zip(*of_kinds, strict=True)]

    def locate(self, positions: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
        """Type: (cell, local facet) of the rows `positions` (P,) of `vertices`."""
        located, start = {}, 0
        for kind, cells in self.cells.items():
            width = len(self.local[kind])
            stop = start + width * len(cells)
            here = positions[(positions >= start) & (positions < stop)] - start
            local = torch.tensor(self.local[kind], device=positions.device)
            if width:
                located[kind] = (here // width, local[here % width])
            start = stop
        return located


def _cells_with_facets(mesh: "Mesh") -> dict[str, Tensor]:
    top = mesh.top_cells()
    if not top or mesh.tdim == 0:
        raise ValueError(f"Facets need cells of dimension 1 or more, the mesh has {list(top)}.")
    return top


def _facet_sizes(top: dict[str, Tensor]) -> list[int]:
    return sorted({len(facet.vertices) for kind in top for facet in local_facets(kind)})


def _occurring_once(keys: Tensor) -> Tensor:
    """Positions of the values that `keys` has once, increasing."""
    if not len(keys):
        return keys
    ordered = sorted_values(keys)
    differs = ordered[1:] != ordered[:-1]
    end = differs.new_ones(1)
    single = ordered[torch.cat([end, differs]) & torch.cat([differs, end])]
    # Few keys are single: a table of their low bits passes them and hardly any others, so that
    # only those that pass are looked up.
    low_bits = (1 << 22) - 1
    table = torch.zeros(low_bits + 1, dtype=torch.bool, device=keys.device)
    table[single & low_bits] = True
    passed = table[keys & low_bits].nonzero().flatten()
    place = torch.searchsorted(single, keys[passed]).clamp_max(max(len(single) - 1, 0))
    return passed[single[place] == keys[passed]] if len(single) else passed


def _increasing(columns: list[Tensor]) -> list[Tensor]:
    """Columns exchanged entry by entry until they increase; there are 4 at most."""
    columns = list(columns)
    for last in range(len(columns) - 1, 0, -1):
        for i in range(last):
            low = torch.minimum(columns[i], columns[i + 1])
            columns[i + 1] = torch.maximum(columns[i], columns[i + 1])
            columns[i] = low
    return columns


def _first_positions(columns: list[Tensor], wanted: Tensor, bound: int) -> Tensor:
    """First row of `columns` that is each of `wanted`, in any order of its entries; -1 for none."""
    sought = _increasing(list(wanted.unbind(1)))
    both = [torch.cat(pair) for pair in zip(columns, sought, strict=True)]
    have, want = column_keys(both, bound).split([len(columns[0]), len(wanted)])
    ordered, position = have.sort(stable=True)
    start = torch.searchsorted(ordered, want)
    found = start < torch.searchsorted(ordered, want, right=True)
    position = torch.cat([position, position.new_tensor([-1])])
    return torch.where(found, position[start], -1)


def _facet_set(top: dict[str, Tensor], found: list[dict[str, tuple[Tensor, Tensor]]]) -> FacetSet:
    """Join what was found for each number of vertices, in order of cell and local facet."""
    of = {}
    for kind, cells in top.items():
        parts = [by_kind[kind] for by_kind in found if kind in by_kind]
        cell = torch.cat([cells.new_empty(0), *(part[0] for part in parts)])
        local = torch.cat([cells.new_empty(0), *(part[1] for part in parts)])
        order = (cell * len(local_facets(kind)) + local).argsort(stable=True)
        of[kind] = (cell[order], local[order])
    return FacetSet(of)


def _check_facet_dimension(mesh: "Mesh", cells: dict[str, Tensor]) -> None:
    for kind in cells:
        if cell_type(kind).dim != mesh.tdim - 1:
            raise ValueError(
                f"Facets of this mesh have dimension {mesh.tdim - 1}, {kind!r} has "
                f"{cell_type(kind).dim}; choose with mesh.group(name, dim={mesh.tdim - 1})."
            )


def _check_found(kind: str, index: Tensor, position: Tensor) -> None:
    missing = index[position < 0]
    if len(missing):
        raise ValueError(
            f"{len(missing)} of {len(index)} cells of type {kind!r} are no facet of a "
            f"top-dimension cell, the first of them is cell {int(missing[0])}."
        )
