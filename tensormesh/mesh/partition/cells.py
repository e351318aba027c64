"""Partition of a mesh: the part of each cell, and the parts as meshes."""

import logging

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from tensormesh.element.cell_type import cell_type
from tensormesh.mesh.adjacency import cell_adjacency
from tensormesh.mesh.arrays import check_arrays
from tensormesh.mesh.mesh import Mesh
from tensormesh.mesh.partition.coordinate import coordinate_labels
from tensormesh.mesh.partition.graph import GRAPH_METHODS, check_method, check_n_parts
from tensormesh.mesh.submesh import extract_part, lower_cell_owners

logger = logging.getLogger(__name__)

METHODS = ("coordinate", *GRAPH_METHODS)


def partition_cells(
    mesh: Mesh,
    n_parts: int,
    method: str = "coordinate",
    weights: Tensor | ArrayLike | None = None,
) -> Tensor:
    """Share the cells of a mesh out among parts.

    The same mesh gives the same parts, on every computer and rank. No method falls back on another.

    Parameters
    ----------
    mesh
        The whole mesh.
    n_parts
        Number of parts, from 1 to the number of cells.
    method
        ``"coordinate"``: recursive bisection of the centroids along the longest axis; parts differ
        by one cell at most. ``"spectral"``: recursive bisection across the Fiedler vector of the
        dual graph, as balanced. ``"metis"``: METIS on the dual graph, parts within some per mille.
    weights
        Work of each cell, (n_cells,), finite and not negative; parts get equal work. None: equal.

    Returns
    -------
    Tensor
        Part of each top-dimension cell, (n_cells,) int64, no part empty. Cells are numbered through
        the top types in order.

    Raises
    ------
    ValueError
        If the method is unknown, `n_parts` is out of range, the mesh has no cells, a coordinate is
        not finite, a cell names a point that does not exist, or the weights do not fit.
    TypeError
        If `n_parts` is no integer.
    ImportError
        If METIS is asked for and `pymetis` is not installed.
    NotConvergedError
        If the eigensolver of ``"spectral"`` did not converge.
    """
    check_method(method, METHODS)
    n_cells = mesh.n_elements
    if n_cells == 0:
        raise ValueError(f"The mesh has no cells to partition: {mesh!r}.")
    check_n_parts(n_parts, n_cells, "cells")
    check_arrays(mesh.arrays())
    work = checked_weights(weights, n_cells)
    if method == "coordinate":
        labels = coordinate_labels(centroids(mesh), n_parts, work)
    else:
        labels = GRAPH_METHODS[method](cell_adjacency(mesh), n_parts, work)
    return torch.from_numpy(labels).to(mesh.device)


def partition_mesh(
    mesh: Mesh, n_parts: int, method: str = "coordinate", ghost_nodes: bool = True
) -> list[Mesh]:
    """Cut a mesh into parts, each a mesh of its own.

    Parameters
    ----------
    mesh
        The whole mesh.
    n_parts, method
        As for `partition_cells`.
    ghost_nodes
        Parts have the nodes that they share with others. There is no other way yet.

    Returns
    -------
    list of Mesh
        The parts in order, see `extract_part`.

    Raises
    ------
    NotImplementedError
        If `ghost_nodes` is False.
    ValueError, TypeError, ImportError, NotConvergedError
        As `partition_cells`.
    """
    if not ghost_nodes:
        raise NotImplementedError(
            "ghost_nodes=False: cells need all their nodes, use ghost_nodes=True."
        )
    labels = partition_cells(mesh, n_parts, method)
    owners = lower_cell_owners(mesh)
    warn_of_orphans(owners)
    return [extract_part(mesh, labels, part, owners) for part in range(n_parts)]


def warn_of_orphans(owners: dict[str, Tensor]) -> None:
    """Log how many lower-dimension cells no top cell has; they go to no part.

    Parameters
    ----------
    owners
        From `lower_cell_owners`.
    """
    for kind, owner in owners.items():
        n_orphans = int((owner < 0).sum())
        if n_orphans:
            logger.warning(
                "%d of %d cells of type %r are part of no top-dimension cell and go to no part.",
                n_orphans,
                len(owner),
                kind,
            )


def centroids(mesh: Mesh) -> NDArray[np.float64]:
    """Mean of the vertices of each top cell, (n_cells, gdim), each coordinate contiguous."""
    points = mesh.points.detach().to("cpu", torch.float64)
    vertices = [
        conn[:, : cell_type(kind).n_vertices].cpu().t().contiguous()
        for kind, conn in mesh.top_cells().items()
    ]
    coordinates = [
        torch.cat([_mean(coordinate.contiguous(), columns) for columns in vertices])
        for coordinate in points.unbind(1)
    ]
    return torch.stack(coordinates).numpy().T


def _mean(values: Tensor, columns: Tensor) -> Tensor:
    """Mean of `values` (n,) over the first axis of the indices `columns`, (B, E)."""
    first, *rest = columns
    total = values.index_select(0, first)
    for column in rest:
        total += values.index_select(0, column)
    return total / (1 + len(rest))


def checked_weights(weights: Tensor | ArrayLike | None, n_cells: int) -> NDArray[np.float64]:
    """Weights as (n_cells,) float64, ones if None.

    Raises
    ------
    ValueError
        If the shape does not fit, one is negative or not finite, or all are zero.
    """
    if weights is None:
        return np.ones(n_cells)
    if isinstance(weights, Tensor):
        weights = weights.detach().cpu().numpy()
    work = np.asarray(weights, np.float64)
    if work.shape != (n_cells,):
        raise ValueError(f"weights must have shape ({n_cells},), got {work.shape}.")
    bad = np.flatnonzero(~(np.isfinite(work) & (work >= 0)))
    if len(bad):
        raise ValueError(f"weights[{bad[0]}] = {work[bad[0]]}; weights must be finite and >= 0.")
    if not work.any():
        raise ValueError("All weights are zero; leave them out for parts of equal size.")
    return work
