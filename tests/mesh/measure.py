"""Measure of affine cells, by the determinant of their axes."""

import torch
from torch import Tensor

from tensormesh.element.cell_type import cell_type
from tensormesh.mesh.mesh import Mesh

# Vertices that span the axes with vertex 0, and the volume over the determinant of these.
AXES = {
    "triangle": ((1, 2), 1 / 2),
    "quad": ((1, 3), 1.0),
    "tetra": ((1, 2, 3), 1 / 6),
    "hexahedron": ((1, 3, 4), 1.0),
    "wedge": ((1, 2, 3), 1 / 2),
}


def volumes(mesh: Mesh) -> Tensor:
    """Signed measure of each top cell, (n_cells,); right if all are affine."""
    found = []
    for kind, conn in mesh.top_cells().items():
        axes, share = AXES[cell_type(kind).shape]
        x = mesh.points[conn]
        found.append(torch.linalg.det(x[:, axes] - x[:, :1]) * share)
    return torch.cat(found)
