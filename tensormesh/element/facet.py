"""Facets of the reference cells: nodes, outward normals, quadrature."""

from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tensormesh.arguments import check_integer
from tensormesh.element.cell_type import cell_name, cell_type
from tensormesh.element.quadrature import quadrature
from tensormesh.element.reference import ENTITIES, SHAPES, file_order_nodes, frame


@dataclass(frozen=True)
class LocalFacet:
    """One facet of a cell type.

    Attributes
    ----------
    cell_name
        Cell type of the facet, for instance ``"triangle6"``.
    nodes
        Local nodes of the cell that lie on it, in the facet's own file order.
    vertices
        The first of `nodes`: its vertices. In 3-D the right-hand rule gives the outward side.
    normal
        Outward unit normal in reference coordinates, (tdim,). With the Jacobian ``J`` of the cell
        map, the physical one is ``J^-T normal``, normalised.
    """

    cell_name: str
    nodes: tuple[int, ...]
    vertices: tuple[int, ...]
    normal: tuple[float, ...]


@cache
def local_facets(name: str) -> tuple[LocalFacet, ...]:
    """Facets of cell type `name`, in VTK's face order; none for a vertex.

    Raises
    ------
    KeyError
        If the cell type is not supported.
    """
    shape = SHAPES[cell_type(name).shape]
    return tuple(_local_facet(name, vertices) for vertices in shape.facets)


def facet_quadrature(name: str, facet: int, degree: int) -> tuple[Tensor, Tensor]:
    """Rule on local facet number `facet` of a reference cell.

    Parameters
    ----------
    name
        Cell type.
    facet
        Index into `local_facets(name)`.
    degree
        Degree of exactness on the facet, as in `quadrature`.

    Returns
    -------
    points
        (Q, tdim), float64, in the reference coordinates of the *cell*. They follow the facet's own
        vertex order, which two neighbours need not share.
    weights
        (Q,), float64; they sum to the measure of the facet of the reference cell (1 for an end of
        a line). With the Jacobian ``J`` of the cell map and the reference normal ``N``, the
        physical measure is ``|det J| |J^-T N| weights``.

    Raises
    ------
    KeyError
        If the cell type is not supported.
    ValueError
        If there is no such facet, or `degree` is negative.
    TypeError
        If `facet` is no integer.
    """
    facets = local_facets(name)
    check_integer("facet", facet)
    if not 0 <= facet < len(facets):
        raise ValueError(f"{name!r} has {len(facets)} facets, there is no facet {facet!r}.")
    chosen = facets[facet]
    points, weights = quadrature(chosen.cell_name, degree)
    origin, axes = frame(SHAPES[cell_type(name).shape], chosen.vertices)
    measure = float(np.sqrt(np.linalg.det(axes @ axes.T))) if len(axes) else 1.0
    return torch.from_numpy(origin) + points @ torch.from_numpy(axes), weights * measure


def _local_facet(name: str, vertices: tuple[int, ...]) -> LocalFacet:
    kind = cell_type(name)
    shape = ENTITIES[len(vertices)]
    facet_name = cell_name(shape, kind.order)
    origin, axes = frame(SHAPES[kind.shape], vertices)
    # Facets of the reference cells are affine images of their own reference cell.
    on_facet = origin + file_order_nodes(SHAPES[shape], cell_type(facet_name).order) @ axes
    nodes = file_order_nodes(SHAPES[kind.shape], kind.order)
    distance = np.abs(on_facet[:, None, :] - nodes[None, :, :]).sum(axis=2)
    return LocalFacet(
        facet_name,
        tuple(int(i) for i in distance.argmin(axis=1)),
        vertices,
        _outward_normal(kind.shape, origin, axes),
    )


def _outward_normal(
    shape: str, origin: NDArray[np.float64], axes: NDArray[np.float64]
) -> tuple[float, ...]:
    normal = np.linalg.svd(axes, full_matrices=True)[2][-1] if len(axes) else np.ones(1)
    centroid = file_order_nodes(SHAPES[shape], 1).mean(axis=0)
    outwards = np.sign(normal @ (origin - centroid))
    return tuple(float(c) for c in outwards * normal + 0.0)
