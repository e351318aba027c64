"""From cells to a mesh that also has its boundary: facets as cells, masks and groups of sides."""

import torch
from torch import Tensor

from tensormesh.element.facet import local_facets
from tensormesh.mesh.facets import FacetSet
from tensormesh.mesh.mesh import Mesh


def mesh_with_boundary(points: Tensor, cells: dict[str, Tensor], sides: dict[str, Tensor]) -> Mesh:
    """Mesh of `cells` and of the facets that one cell has, without points that no cell has.

    Parameters
    ----------
    points
        (n, D).
    cells
        Type: (E, B), of one dimension.
    sides
        Name: nodes of that part of the boundary, (n,) bool; nodes inside may be flagged too.

    Returns
    -------
    Mesh
        Point data ``is_boundary`` and ``is_<side>_boundary``. The facets all of whose nodes are on
        a side are its group; a facet is right-handed about the outward normal.
    """
    points, cells, used = _without_orphans(points, cells)
    boundary = Mesh.from_arrays(points, cells).boundary_facets()
    facets = _facet_cells(cells, boundary)
    on_boundary = _nodes_of(facets, len(points))
    masks = {name: on_boundary & mask[used] for name, mask in sides.items()}
    return Mesh.from_arrays(
        points,
        cells | facets,
        {"is_boundary": on_boundary} | {f"is_{name}_boundary": m for name, m in masks.items()},
        cell_sets={name: _inside(facets, mask) for name, mask in masks.items()},
    )


def _without_orphans(
    points: Tensor, cells: dict[str, Tensor]
) -> tuple[Tensor, dict[str, Tensor], Tensor]:
    """Points that a cell has, cells in their numbering, and which points they are, (n,) bool."""
    used = _nodes_of(cells, len(points))
    number = used.cumsum(0) - 1
    return points[used], {kind: number[conn] for kind, conn in cells.items()}, used


def _nodes_of(cells: dict[str, Tensor], n_points: int) -> Tensor:
    mask = torch.zeros(n_points, dtype=torch.bool, device="cpu")
    for conn in cells.values():
        mask[conn] = True
    return mask


def _facet_cells(cells: dict[str, Tensor], facets: FacetSet) -> dict[str, Tensor]:
    """Connectivity of `facets` by type."""
    rows: dict[str, list[Tensor]] = {}
    for kind, (cell, local) in facets.items():
        for number, facet in enumerate(local_facets(kind)):
            nodes = cells[kind][cell[local == number]][:, list(facet.nodes)]
            rows.setdefault(facet.cell_name, []).append(nodes)
    return {kind: torch.cat(found) for kind, found in rows.items() if any(map(len, found))}


def _inside(cells: dict[str, Tensor], mask: Tensor) -> dict[str, Tensor]:
    """Cells all of whose nodes are in `mask`, {type: indices}, types without any left out."""
    found = {kind: mask[conn].all(dim=1).nonzero().flatten() for kind, conn in cells.items()}
    return {kind: index for kind, index in found.items() if len(index)}
