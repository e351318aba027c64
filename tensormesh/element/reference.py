"""Reference shapes: vertices, edges, faces and facets in the order of VTK, hence of meshio.

The geometry is that of basix (unit interval, unit simplices, unit squares and cubes); only the
numbering differs. Facets list their vertices in the order in which the facet's own cell type
numbers them, and such that the right-hand rule points outwards. Edges and faces say how the nodes
inside them run, which from order 3 on is another matter.

Source: the classes vtkLagrange... of VTK 9, whose nodes these are up to order 4.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Vertices = tuple[int, ...]


@dataclass(frozen=True)
class Shape:
    """One reference shape; entities are tuples of local vertex numbers.

    Attributes
    ----------
    name, basix
        meshio's name of the cell type of order 1, and the member of ``basix.CellType``.
    dim
        Dimension.
    vertices
        Their coordinates.
    edges
        Nodes inside an edge run from its first vertex to its second.
    facets
        Entities of one dimension less.
    faces
        Two-dimensional entities. Nodes inside run along the axis from the first to the second
        vertex first, then along that from the first to the last.
    slopes
        Rows ``a`` with ``a . x <= 1`` inside, besides ``0 <= x <= 1``.
    """

    name: str
    basix: str
    dim: int
    vertices: tuple[tuple[float, ...], ...]
    edges: tuple[Vertices, ...] = ()
    facets: tuple[Vertices, ...] = ()
    faces: tuple[Vertices, ...] = ()
    slopes: tuple[tuple[int, ...], ...] = ()


_TRIANGLE_EDGES = ((0, 1), (1, 2), (2, 0))
_QUAD_EDGES = ((0, 1), (1, 2), (3, 2), (0, 3))
_HEXAHEDRON_FACETS = (
    (0, 4, 7, 3),
    (1, 2, 6, 5),
    (0, 1, 5, 4),
    (3, 7, 6, 2),
    (0, 3, 2, 1),
    (4, 5, 6, 7),
)
_HEXAHEDRON_FACES = (
    (0, 3, 7, 4),
    (1, 2, 6, 5),
    (0, 1, 5, 4),
    (3, 2, 6, 7),
    (0, 1, 2, 3),
    (4, 5, 6, 7),
)
_WEDGE_QUADS = ((0, 1, 4, 3), (1, 2, 5, 4), (2, 0, 3, 5))

SHAPES: dict[str, Shape] = {
    shape.name: shape
    for shape in (
        Shape("vertex", "point", 0, ((),)),
        Shape("line", "interval", 1, ((0.0,), (1.0,)), edges=((0, 1),), facets=((0,), (1,))),
        Shape(
            "triangle",
            "triangle",
            2,
            ((0.0, 0.0), (1.0, 0.0), (0.0, 1.0)),
            edges=_TRIANGLE_EDGES,
            facets=_TRIANGLE_EDGES,
            faces=((0, 1, 2),),
            slopes=((1, 1),),
        ),
        Shape(
            "quad",
            "quadrilateral",
            2,
            ((0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (0.0, 1.0)),
            edges=_QUAD_EDGES,
            facets=((0, 1), (1, 2), (2, 3), (3, 0)),
            faces=((0, 1, 2, 3),),
        ),
        Shape(
            "tetra",
            "tetrahedron",
            3,
            ((0.0, 0.0, 0.0), (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)),
            edges=(*_TRIANGLE_EDGES, (0, 3), (1, 3), (2, 3)),
            facets=((0, 1, 3), (1, 2, 3), (2, 0, 3), (0, 2, 1)),
            faces=((0, 1, 3), (2, 3, 1), (0, 3, 2), (0, 2, 1)),
            slopes=((1, 1, 1),),
        ),
        Shape(
            "hexahedron",
            "hexahedron",
            3,
            (
                (0.0, 0.0, 0.0),
                (1.0, 0.0, 0.0),
                (1.0, 1.0, 0.0),
                (0.0, 1.0, 0.0),
                (0.0, 0.0, 1.0),
                (1.0, 0.0, 1.0),
                (1.0, 1.0, 1.0),
                (0.0, 1.0, 1.0),
            ),
            edges=(
                *_QUAD_EDGES,
                *((4, 5), (5, 6), (7, 6), (4, 7)),
                *((0, 4), (1, 5), (2, 6), (3, 7)),
            ),
            facets=_HEXAHEDRON_FACETS,
            faces=_HEXAHEDRON_FACES,
        ),
        Shape(
            "wedge",
            "prism",
            3,
            (
                (0.0, 0.0, 0.0),
                (1.0, 0.0, 0.0),
                (0.0, 1.0, 0.0),
                (0.0, 0.0, 1.0),
                (1.0, 0.0, 1.0),
                (0.0, 1.0, 1.0),
            ),
            edges=(*_TRIANGLE_EDGES, (3, 4), (4, 5), (5, 3), (0, 3), (1, 4), (2, 5)),
            facets=((0, 2, 1), (3, 4, 5), *_WEDGE_QUADS),
            faces=((0, 1, 2), (3, 4, 5), *_WEDGE_QUADS),
            slopes=((1, 1, 0),),
        ),
        Shape(
            "pyramid",
            "pyramid",
            3,
            (
                (0.0, 0.0, 0.0),
                (1.0, 0.0, 0.0),
                (1.0, 1.0, 0.0),
                (0.0, 1.0, 0.0),
                (0.0, 0.0, 1.0),
            ),
            edges=(*_QUAD_EDGES, (0, 4), (1, 4), (2, 4), (3, 4)),
            facets=((0, 3, 2, 1), (0, 1, 4), (1, 2, 4), (2, 3, 4), (3, 0, 4)),
            faces=((0, 3, 2, 1),),
            slopes=((1, 0, 1), (0, 1, 1)),
        ),
    )
}


def file_order_nodes(shape: Shape, order: int) -> NDArray[np.float64]:
    """Reference coordinates of the Lagrange nodes of `shape`, in VTK's order.

    Parameters
    ----------
    shape
        A member of `SHAPES`.
    order
        Polynomial order: vertices, then nodes inside edges, inside faces, inside the cell, evenly
        spaced.

    Returns
    -------
    ndarray
        (n_nodes, dim), float64.

    Raises
    ------
    NotImplementedError
        If the order is not 1 to 4, or not 1 or 2 on a pyramid.
    """
    highest = 2 if shape.name == "pyramid" else 4
    if order not in range(1, highest + 1):
        raise NotImplementedError(f"{shape.name} has orders 1 to {highest}, not {order}.")
    nodes = [np.array(shape.vertices, dtype=np.float64).reshape(len(shape.vertices), shape.dim)]
    for entity in (*shape.edges, *shape.faces):
        origin, axes = frame(shape, entity)
        nodes.append(origin + inner_lattice(SHAPES[ENTITIES[len(entity)]], order) / order @ axes)
    if shape.dim == 3:
        nodes.append(inner_lattice(shape, order) / order)
    return np.vstack(nodes)


ENTITIES = {1: "vertex", 2: "line", 3: "triangle", 4: "quad"}
"""Shape of an edge, a face or a facet by its number of vertices."""


def frame(shape: Shape, entity: Vertices) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """First vertex (dim,) of an edge, a face or a facet, and its axes (its dimension, dim)."""
    corners = np.array([shape.vertices[v] for v in entity], dtype=np.float64)
    axes = SHAPES[ENTITIES[len(entity)]].dim
    return corners[0], corners[[1, -1][:axes]] - corners[0]


def inner_lattice(shape: Shape, order: int) -> NDArray[np.int64]:
    """Nodes inside `shape` as steps of 1 / order, the first axis fastest, (k, dim)."""
    steps = np.arange(1, order)
    grid = np.meshgrid(*[steps] * shape.dim, indexing="ij")
    places = np.stack([axis.ravel(order="F") for axis in grid], axis=1)
    slopes = np.array(shape.slopes, dtype=np.int64).reshape(-1, shape.dim)
    return places[(places @ slopes.T < order).all(axis=1)]
