"""Numbers for the nodes of a higher order: inside edges, faces and cells, shared between cells.

A node inside an edge or a face belongs to all cells that have the edge or the face. These are found
by their vertices, and the nodes inside are counted from a frame that depends on the numbers of the
vertices alone, so that each cell finds the same node at the same place however it lies.
"""

from collections.abc import Mapping
from functools import cache
from itertools import permutations

import numpy as np
import torch
from torch import Tensor

from tensormesh.element.cell_type import cell_type
from tensormesh.element.reference import ENTITIES, SHAPES, Vertices, inner_lattice
from tensormesh.mesh.row_keys import row_keys


def lattice_numbers(
    cells: Mapping[str, Tensor], n_points: int, order: int
) -> tuple[dict[str, Tensor], int]:
    """Number the nodes that cells have at another order.

    Parameters
    ----------
    cells
        Type: connectivity (E, B); only the vertices, its first columns, are looked at.
    n_points
        Bound of their numbers.
    order
        The order.

    Returns
    -------
    nodes
        The type as given: (E, number of nodes of its shape at `order`), in the order of files.
        Vertices keep their numbers. From `n_points` on follow the nodes inside edges in the order
        of the vertices of these, those inside triangles, inside quadrilaterals, and inside cells.
    n_numbers
        One more than the largest number.
    """
    vertices = {kind: conn[:, : cell_type(kind).n_vertices] for kind, conn in cells.items()}
    inside: dict[str, dict[Vertices, Tensor]] = {kind: {} for kind in cells}
    n_numbers = n_points
    for n_vertices in (2, 3, 4):
        entities = [(kind, e) for kind in cells for e in _entities(kind) if len(e) == n_vertices]
        n_inside = len(inner_lattice(SHAPES[ENTITIES[n_vertices]], order))
        if not entities or not n_inside:
            continue
        rows = [vertices[kind][:, list(entity)] for kind, entity in entities]
        numbers, n_distinct = _numbers_inside(torch.cat(rows), n_points, order)
        of_entities = (n_numbers + numbers).split([len(r) for r in rows])
        for (kind, entity), of_entity in zip(entities, of_entities, strict=True):
            inside[kind][entity] = of_entity
        n_numbers += n_distinct * n_inside
    nodes = {}
    for kind, corners in vertices.items():
        shape, n_cells = SHAPES[cell_type(kind).shape], len(corners)
        n_own = len(inner_lattice(shape, order)) if shape.dim == 3 else 0
        own = n_numbers + torch.arange(n_cells * n_own, device=corners.device).view(n_cells, n_own)
        of_entities = [inside[kind][e] for e in _entities(kind) if e in inside[kind]]
        nodes[kind] = torch.cat([corners, *of_entities, own], dim=1)
        n_numbers += n_cells * n_own
    return nodes, n_numbers


def _entities(kind: str) -> tuple[Vertices, ...]:
    """Edges and faces of a cell type, in the order in which their nodes stand in it."""
    shape = SHAPES[cell_type(kind).shape]
    return (*shape.edges, *shape.faces)


def _numbers_inside(rows: Tensor, n_points: int, order: int) -> tuple[Tensor, int]:
    """Numbers (N, k) from 0 of the nodes inside entities with vertices (N, 2..4), and how many."""
    distinct, number = torch.unique(
        row_keys(rows.sort(dim=1).values, n_points), return_inverse=True
    )
    n_vertices = rows.shape[1]
    role = _roles_in_quads(rows) if n_vertices == 4 else rows.argsort(dim=1).argsort(dim=1)
    digits = n_vertices ** torch.arange(n_vertices, device=rows.device)
    places = _places(ENTITIES[n_vertices], order).to(rows.device)[(role * digits).sum(dim=1)]
    return number.unsqueeze(1) * places.shape[1] + places, len(distinct)


def _roles_in_quads(rows: Tensor) -> Tensor:
    """Place of each vertex if one counts from the lowest towards the lower of its neighbours."""
    first = rows.argmin(dim=1, keepdim=True)
    after, before = rows.gather(1, (first + 1) % 4), rows.gather(1, (first + 3) % 4)
    step = torch.where(after < before, 1, -1)
    return (step * (torch.arange(4, device=rows.device) - first)) % 4


@cache
def _places(name: str, order: int) -> Tensor:
    """Place in the common frame of each node inside an entity, for each role of its vertices.

    The row is the number whose digits are the roles of vertices 0, 1, ...; (n^n, k) int64, of which
    those rows count that are symmetries of the shape.
    """
    shape = SHAPES[name]
    corners = np.array(shape.vertices).reshape(len(shape.vertices), shape.dim)
    lattice = inner_lattice(shape, order)
    n = len(corners)
    table = np.full((n**n, len(lattice)), -1)
    for roles in permutations(range(n)):
        origin = corners[roles[0]]
        axes = corners[[roles[1], roles[-1]][: shape.dim]] - origin
        turned = np.rint(order * origin + lattice @ axes).astype(int)
        same = (turned[:, None] == lattice[None]).all(axis=2)
        if same.any(axis=1).all():
            row = sum(role * n**i for i, role in enumerate(roles))
            table[row] = same.argmax(axis=1)
    return torch.from_numpy(table)
