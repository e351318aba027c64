"""Cells of order 3 and more in VTK files: one type a shape, whose order is told by its nodes.

A .vtu file of version 0.1 or 1.0, which is what meshio reads and writes, has the vertical edges 2
and 3 of a Lagrange hexahedron exchanged: VTK numbered them so before version 9, and its reader
exchanges them in files that old.
"""

import meshio
import numpy as np
from numpy.typing import NDArray

from tensormesh.element.cell_type import NAMES, cell_type

_TYPES = {
    "line": "VTK_LAGRANGE_CURVE",
    "triangle": "VTK_LAGRANGE_TRIANGLE",
    "quad": "VTK_LAGRANGE_QUADRILATERAL",
    "tetra": "VTK_LAGRANGE_TETRAHEDRON",
    "hexahedron": "VTK_LAGRANGE_HEXAHEDRON",
    "wedge": "VTK_LAGRANGE_WEDGE",
}
"""Shape: meshio's name of the type."""


def from_lagrange_types(mesh: meshio.Mesh, file_format: str) -> None:
    """Name the cells of a mesh that was read from a VTK file by shape and number of nodes.

    Raises
    ------
    ValueError
        If no supported type of the shape has that many nodes.
    """
    shapes = {lagrange: shape for shape, lagrange in _TYPES.items()}
    for i, block in enumerate(mesh.cells):
        if block.type in shapes:
            kind = _type_of(shapes[block.type], block.data.shape[1])
            mesh.cells[i] = meshio.CellBlock(kind, _exchanged(kind, block.data, file_format))


def to_lagrange_types(mesh: meshio.Mesh, file_format: str) -> None:
    """Give cells of order 3 and more the type that a VTK file has for them."""
    for i, block in enumerate(mesh.cells):
        if cell_type(block.type).order > 2:
            lagrange = _TYPES[cell_type(block.type).shape]
            data = _exchanged(block.type, block.data, file_format)
            mesh.cells[i] = meshio.CellBlock(lagrange, data)


def _type_of(shape: str, n_nodes: int) -> str:
    sizes = {cell_type(k).n_nodes: k for k, (its_shape, _) in NAMES.items() if its_shape == shape}
    if n_nodes not in sizes:
        raise ValueError(
            f"{_TYPES[shape]} with {n_nodes} nodes is not supported; there are those with"
            f" {', '.join(map(str, sizes))}."
        )
    return sizes[n_nodes]


def _exchanged(kind: str, cells: NDArray, file_format: str) -> NDArray:
    """Cells with the nodes inside the vertical edges 2 and 3 exchanged, where that is due."""
    of = cell_type(kind)
    if file_format != "vtu" or of.shape != "hexahedron":
        return cells
    inside = of.order - 1
    edges = of.n_vertices + inside * np.arange(10, 13)
    order = np.arange(of.n_nodes)
    order[edges[0] : edges[2]] = np.roll(order[edges[0] : edges[2]], inside)
    return cells[:, order]
