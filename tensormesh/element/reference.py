"""Reference shapes: vertices, edges and facets in the order of VTK, hence of meshio.

The geometry is that of basix (unit interval, unit simplices, unit squares and cubes); only the
numbering differs. Facets list their vertices in the order in which the facet's own cell type
numbers them, and such that the right-hand rule points outwards.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Vertices = tuple[int, ...]


@dataclass(frozen=True)
class Shape:
    """One reference shape; entities are tuples of local vertex numbers.

    ``basix`` is the member name of ``basix.CellType``; ``quads`` are the entities with four
    vertices that carry a centre node from order 2 on, in VTK's node order, and ``centre`` says
    whether a node in the middle of a three-dimensional shape follows them.
    """

    name: str
    basix: str
    dim: int
    vertices: tuple[tuple[float, ...], ...]
    edges: tuple[Vertices, ...] = ()
    facets: tuple[Vertices, ...] = ()
    quads: tuple[Vertices, ...] = ()
    centre: bool = False


_TRIANGLE_EDGES = ((0, 1), (1, 2), (2, 0))
_QUAD_EDGES = ((0, 1), (1, 2), (2, 3), (3, 0))
_HEXAHEDRON_FACES = (
    (0, 4, 7, 3),
    (1, 2, 6, 5),
    (0, 1, 5, 4),
    (3, 7, 6, 2),
    (0, 3, 2, 1),
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
        ),
        Shape(
            "quad",
            "quadrilateral",
            2,
            ((0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (0.0, 1.0)),
            edges=_QUAD_EDGES,
            facets=_QUAD_EDGES,
            quads=((0, 1, 2, 3),),
        ),
        Shape(
            "tetra",
            "tetrahedron",
            3,
            ((0.0, 0.0, 0.0), (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)),
            edges=(*_TRIANGLE_EDGES, (0, 3), (1, 3), (2, 3)),
            facets=((0, 1, 3), (1, 2, 3), (2, 0, 3), (0, 2, 1)),
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
                *((4, 5), (5, 6), (6, 7), (7, 4)),
                *((0, 4), (1, 5), (2, 6), (3, 7)),
            ),
            facets=_HEXAHEDRON_FACES,
            quads=_HEXAHEDRON_FACES,
            centre=True,
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
            quads=_WEDGE_QUADS,
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
            quads=((0, 3, 2, 1),),
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
        Polynomial order, 1 or 2: vertices, then mid-points of edges, centres of quadrilateral
        faces, centre of the hexahedron.

    Returns
    -------
    ndarray
        (n_nodes, dim), float64.

    Raises
    ------
    NotImplementedError
        For another order.
    """
    if order not in (1, 2):
        raise NotImplementedError(f"Node order of {shape.name} is known for order 1, 2: {order}.")
    vertices = np.array(shape.vertices, dtype=np.float64).reshape(len(shape.vertices), shape.dim)
    if order == 1:
        return vertices
    supports = [*shape.edges, *shape.quads]
    if shape.centre:
        supports.append(tuple(range(len(vertices))))
    return np.vstack([vertices, *(vertices[list(s)].mean(axis=0) for s in supports)])
