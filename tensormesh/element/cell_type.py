"""Cell types by meshio name, and the permutation from file node order to that of basix."""

from dataclasses import dataclass
from functools import cache

import basix
import numpy as np
from numpy.typing import NDArray

from tensormesh.arguments import check_integer
from tensormesh.element.reference import SHAPES, file_order_nodes

NAMES: dict[str, tuple[str, int]] = {
    "vertex": ("vertex", 1),
    "line": ("line", 1),
    "line3": ("line", 2),
    "line4": ("line", 3),
    "line5": ("line", 4),
    "triangle": ("triangle", 1),
    "triangle6": ("triangle", 2),
    "triangle10": ("triangle", 3),
    "triangle15": ("triangle", 4),
    "quad": ("quad", 1),
    "quad9": ("quad", 2),
    "quad16": ("quad", 3),
    "quad25": ("quad", 4),
    "tetra": ("tetra", 1),
    "tetra10": ("tetra", 2),
    "tetra20": ("tetra", 3),
    "tetra35": ("tetra", 4),
    "hexahedron": ("hexahedron", 1),
    "hexahedron27": ("hexahedron", 2),
    "hexahedron64": ("hexahedron", 3),
    "hexahedron125": ("hexahedron", 4),
    "wedge": ("wedge", 1),
    "wedge18": ("wedge", 2),
    "wedge40": ("wedge", 3),
    "wedge75": ("wedge", 4),
    "pyramid": ("pyramid", 1),
    "pyramid14": ("pyramid", 2),
}
"""Supported cell type: (shape, order)."""

SERENDIPITY = {
    "quad8": "quad9",
    "hexahedron20": "hexahedron27",
    "wedge15": "wedge18",
    "pyramid13": "pyramid14",
}
"""Types without nodes inside faces and cells: the complete type that replaces each."""


@dataclass(frozen=True)
class CellType:
    """What the rest of the package asks about a cell type.

    Attributes
    ----------
    name, shape
        meshio's name, for instance ``"tetra10"``, and that of its first-order relative.
    order
        Polynomial order of the Lagrange basis on it.
    dim
        Topological dimension.
    n_nodes, n_vertices
        Nodes in all; the vertices are the first of them.
    basix_permutation
        ``file[i] = basix[basix_permutation[i]]`` for anything with a node axis.
    """

    name: str
    shape: str
    order: int
    dim: int
    n_nodes: int
    n_vertices: int
    basix_permutation: tuple[int, ...]


@cache
def cell_type(name: str) -> CellType:
    """Look up the cell type called `name` by meshio.

    Raises
    ------
    KeyError
        If it is not supported, with the supported names.

    Examples
    --------
    >>> cell_type("tetra10").n_vertices
    4
    """
    if name not in NAMES:
        raise KeyError(_unsupported(name))
    shape, order = NAMES[name]
    nodes = file_order_nodes(SHAPES[shape], order)
    permutation = _match(nodes, _basix_points(name))
    dim, n_vertices = SHAPES[shape].dim, len(SHAPES[shape].vertices)
    return CellType(name, shape, order, dim, len(nodes), n_vertices, permutation)


def cell_name(shape: str, order: int) -> str:
    """Name of the cell type of `shape` and `order`; a vertex has no order.

    Raises
    ------
    KeyError
        If no supported type is like that.
    TypeError
        If `order` is no integer.
    """
    check_integer("order", order)
    wanted = (shape, 1 if shape == "vertex" else order)
    for name, key in NAMES.items():
        if key == wanted:
            return name
    raise KeyError(f"No supported cell type has shape {shape!r} and order {order}.")


@cache
def lagrange_element(name: str) -> basix.finite_element.FiniteElement:
    """Lagrange element of basix on cell type `name` (not a vertex), in the node order of basix.

    Nodes are evenly spaced, as in VTK and gmsh.
    """
    shape, order = NAMES[name]
    return basix.create_element(
        basix.ElementFamily.P,
        basix.CellType[SHAPES[shape].basix],
        order,
        basix.LagrangeVariant.equispaced,
    )


def _basix_points(name: str) -> NDArray[np.float64]:
    if name == "vertex":
        return np.zeros((1, 0))
    return np.asarray(lagrange_element(name).points)


def _match(nodes: NDArray[np.float64], points: NDArray[np.float64]) -> tuple[int, ...]:
    distance = np.abs(nodes[:, None, :] - points[None, :, :]).sum(axis=2)
    return tuple(int(i) for i in distance.argmin(axis=1))


def _unsupported(name: str) -> str:
    message = f"Cell type {name!r} is not supported; supported are {', '.join(NAMES)}."
    if name in SERENDIPITY:
        message += (
            f" {name!r} is a serendipity type: it lacks nodes inside faces or cells, so the"
            f" complete second-order basis does not fit. Write the mesh with {SERENDIPITY[name]!r}"
            " (gmsh: Mesh.SecondOrderIncomplete = 0), or with first-order cells."
        )
    return message
