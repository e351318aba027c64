"""Node orders and type numbers of gmsh.

Source: the section "Node ordering" and the MSH file format in the reference manual of gmsh.
"""

from functools import cache

from tensormesh.element.cell_type import NAMES, cell_type
from tensormesh.element.reference import SHAPES

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
}
"""Cell type: its number in MSH files. The serendipity types are here to be refused by name."""

_EDGES = {
    "tetra": ((0, 1), (1, 2), (0, 2), (0, 3), (2, 3), (1, 3)),
    "hexahedron": (
        *((0, 1), (0, 3), (0, 4), (1, 2), (1, 5), (2, 3)),
        *((2, 6), (3, 7), (4, 5), (4, 7), (5, 6), (6, 7)),
    ),
    "wedge": ((0, 1), (0, 2), (0, 3), (1, 2), (1, 4), (2, 5), (3, 4), (3, 5), (4, 5)),
    "pyramid": ((0, 1), (0, 3), (0, 4), (1, 2), (1, 4), (2, 3), (2, 4), (3, 4)),
}
_QUADS = {
    "hexahedron": (
        *((0, 1, 2, 3), (0, 1, 4, 5), (0, 3, 4, 7)),
        *((1, 2, 5, 6), (2, 3, 6, 7), (4, 5, 6, 7)),
    ),
    "wedge": ((0, 1, 3, 4), (0, 2, 3, 5), (1, 2, 4, 5)),
    "pyramid": ((0, 1, 2, 3),),
}


@cache
def gmsh_to_file(name: str) -> list[int]:
    """Permutation with ``cells = gmsh_cells[:, permutation]`` for cell type `name`.

    Plane cells and first-order cells agree: there it is the identity.
    """
    kind = cell_type(name)
    permutation = list(range(kind.n_nodes))
    if kind.order == 1 or kind.shape not in _EDGES:
        return permutation
    shape = SHAPES[kind.shape]
    ours = [frozenset(entity) for entity in (*shape.edges, *shape.quads)]
    theirs = [frozenset(e) for e in (*_EDGES[kind.shape], *_QUADS.get(kind.shape, ()))]
    moved = [kind.n_vertices + theirs.index(entity) for entity in ours]
    permutation[kind.n_vertices : kind.n_vertices + len(moved)] = moved
    return permutation


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
