"""The polygons that one sees of a mesh."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tensormesh.element.cell_type import cell_type
from tensormesh.element.facet import local_facets
from tensormesh.mesh.facets import boundary_facets
from tensormesh.mesh.mesh import Mesh


def visible_polygons(mesh: Mesh) -> list[Tensor]:
    """Corners of the polygons that show: cells of a plane mesh or surface, surface of a solid.

    The surface of a part of a larger mesh includes the faces where it was cut off.

    Parameters
    ----------
    mesh
        2-D or 3-D.

    Returns
    -------
    list of Tensor
        int64 ``[P, 3]`` and ``[P, 4]``, whichever there are: points by number, around each polygon.

    Raises
    ------
    ValueError
        If the mesh has no cells of dimension 2 or 3.
    """
    top = mesh.top_cells()
    if not top or mesh.tdim not in (2, 3):
        raise ValueError(f"there is nothing to draw: cells of types {list(top)}")
    if mesh.tdim == 2:
        return _grouped([cell[:, : cell_type(kind).n_vertices] for kind, cell in top.items()])
    found = []
    for kind, (cells, local) in boundary_facets(mesh).items():
        for number, facet in enumerate(local_facets(kind)):
            chosen = cells[local == number]
            found.append(top[kind][chosen][:, list(facet.vertices)])
    return _grouped(found)


def _grouped(polygons: list[Tensor]) -> list[Tensor]:
    sizes = sorted({p.shape[1] for p in polygons if p.shape[0]})
    return [torch.cat([p for p in polygons if p.shape[1] == size]) for size in sizes]


def as_triangles(polygons: list[Tensor]) -> NDArray[np.int64]:
    """Polygons cut into triangles, ``[T, 3]``."""
    triangles = []
    for polygon in polygons:
        for corner in range(1, polygon.shape[1] - 1):
            triangles.append(polygon[:, [0, corner, corner + 1]])
    joined: NDArray[np.int64] = torch.cat(triangles).cpu().numpy()
    return joined
