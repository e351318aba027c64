"""Node orders and type numbers of gmsh.

gmsh numbers vertices, then edge by edge, face by face, and inside. The nodes inside an edge run
along it. Those inside a face or a cell are numbered like those of a smaller one, vertices first;
those inside a wedge column by column.

Source: the section "Node ordering" and the MSH file format in the reference manual of gmsh.
"""

from functools import cache

import numpy as np
from numpy.typing import NDArray

from tensormesh.element.cell_type import NAMES, cell_type
from tensormesh.element.reference import (
    ENTITIES,
    SHAPES,
    Shape,
    file_order_nodes,
    frame,
    inner_lattice,
)

TYPE_NUMBERS = {
    "line": 1,
    "triangle": 2,
    "quad": 3,
    "tetra": 4,
    "hexahedron": 5,
    "wedge": 6,
    "pyramid": 7,
    "line3": 8,
    "triangle6": 9,
    "quad9": 10,
    "tetra10": 11,
    "hexahedron27": 12,
    "wedge18": 13,
    "pyramid14": 14,
    "vertex": 15,
    "quad8": 16,
    "hexahedron20": 17,
    "wedge15": 18,
    "pyramid13": 19,
    "triangle10": 21,
    "triangle15": 23,
    "line4": 26,
    "line5": 27,
    "tetra20": 29,
    "tetra35": 30,
    "quad16": 36,
    "quad25": 37,
    "wedge40": 90,
    "wedge75": 91,
    "hexahedron64": 92,
    "hexahedron125": 93,
}
"""Cell type: its number in MSH files. The serendipity types are here to be refused by name."""

_EDGES = {
    "line": ((0, 1),),
    "triangle": ((0, 1), (1, 2), (2, 0)),
    "quad": ((0, 1), (1, 2), (2, 3), (3, 0)),
    "tetra": ((0, 1), (1, 2), (2, 0), (3, 0), (3, 2), (3, 1)),
    "hexahedron": (
        *((0, 1), (0, 3), (0, 4), (1, 2), (1, 5), (2, 3)),
        *((2, 6), (3, 7), (4, 5), (4, 7), (5, 6), (6, 7)),
    ),
    "wedge": ((0, 1), (0, 2), (0, 3), (1, 2), (1, 4), (2, 5), (3, 4), (3, 5), (4, 5)),
    "pyramid": ((0, 1), (0, 3), (0, 4), (1, 2), (1, 4), (2, 3), (2, 4), (3, 4)),
}
_FACES = {
    "triangle": ((0, 1, 2),),
    "quad": ((0, 1, 2, 3),),
    "tetra": ((0, 2, 1), (0, 1, 3), (0, 3, 2), (3, 1, 2)),
    "hexahedron": (
        *((0, 3, 2, 1), (0, 1, 5, 4), (0, 4, 7, 3)),
        *((1, 2, 6, 5), (2, 3, 7, 6), (4, 5, 6, 7)),
    ),
    "wedge": ((0, 2, 1), (3, 4, 5), (0, 1, 4, 3), (0, 3, 5, 2), (1, 2, 5, 4)),
    "pyramid": ((0, 3, 2, 1),),
}
_SHRINK = {"triangle": 3, "quad": 2, "tetra": 4, "hexahedron": 2}
"""Shape: how much lower the order of the cell is that the nodes inside make, if they do."""


@cache
def gmsh_to_file(name: str) -> list[int]:
    """Permutation with ``cells = gmsh_cells[:, permutation]`` for cell type `name`."""
    kind = cell_type(name)
    shape = SHAPES[kind.shape]
    ours = np.rint(kind.order * file_order_nodes(shape, kind.order)).astype(np.int64)
    theirs = {tuple(place): i for i, place in enumerate(_places(shape, kind.order).tolist())}
    return [theirs[tuple(place)] for place in ours.tolist()]


def _places(shape: Shape, order: int) -> NDArray[np.int64]:
    """Nodes of `shape` in gmsh's order, as steps of 1 / order from the origin, (B, dim)."""
    if order == 0:
        return np.zeros((1, shape.dim), np.int64)
    parts = [order * np.array(shape.vertices, np.int64).reshape(len(shape.vertices), -1)]
    for entity in (*_EDGES.get(shape.name, ()), *_FACES.get(shape.name, ())):
        origin, axes = (part.astype(np.int64) for part in frame(shape, entity))
        parts.append(order * origin + _inside(SHAPES[ENTITIES[len(entity)]], order) @ axes)
    if shape.dim == 3:
        parts.append(_inside(shape, order))
    return np.concatenate(parts)


def _inside(shape: Shape, order: int) -> NDArray[np.int64]:
    """Nodes inside an edge, a face or a cell, as `_places` gives all of them."""
    lattice = inner_lattice(shape, order)
    if shape.dim == 1 or not len(lattice):
        return lattice
    if shape.name == "wedge":  # a column above each node of the triangle
        triangle = _inside(SHAPES["triangle"], order)
        column = 1 + _places(SHAPES["line"], order - 2)
        rows = [np.repeat(triangle, len(column), axis=0), np.tile(column, (len(triangle), 1))]
        return np.concatenate(rows, axis=1)
    return 1 + _places(shape, order - _SHRINK[shape.name])


@cache
def file_to_gmsh(name: str) -> list[int]:
    """The inverse of `gmsh_to_file`."""
    permutation = gmsh_to_file(name)
    return sorted(range(len(permutation)), key=permutation.__getitem__)


def type_name(number: int) -> str:
    """Cell type with number `number` in MSH files.

    Raises
    ------
    ValueError
        If it is not supported.
    """
    for name, its_number in TYPE_NUMBERS.items():
        if its_number == number:
            return name
    raise ValueError(f"gmsh cell type {number} is not supported; supported are {', '.join(NAMES)}.")
