"""Is a mesh of order 2 or more in the node order that its cell types say? Nodes of edges tell."""

import warnings

import torch
from torch import Tensor

from tensormesh.element.cell_type import cell_type
from tensormesh.element.reference import SHAPES

_BLOCK = 4096
"""Cells looked at together, so that the distances between all nodes of edges stay small."""


def check_node_ordering(
    points: Tensor, cells: dict[str, Tensor], raise_on_error: bool = True
) -> dict[str, int]:
    """Count the cells with nodes of edges that belong elsewhere on the edges.

    A node inside an edge has its place on the straight edge. It is out of place if the place of
    another such node of its cell is nearer than its own, and its own is further away than half the
    distance between the places of the edge: curved edges are not.

    Parameters
    ----------
    points
        (n, D).
    cells
        Type: (E, B).
    raise_on_error
        Raise, or warn for few, instead of only counting.

    Returns
    -------
    dict
        Type of order 2 or more: number of cells.

    Raises
    ------
    ValueError
        If half of the cells of a type or more are in another order.
    """
    bad = {k: _n_bad(points.detach(), k, c) for k, c in cells.items() if cell_type(k).order > 1}
    for kind, n_bad in bad.items() if raise_on_error else ():
        message = (
            f"{n_bad} of {len(cells[kind])} cells of type {kind!r} have nodes of edges nearer to"
            " another place than to their own: their nodes are not in the order of meshio (VTK)."
        )
        if n_bad and 2 * n_bad >= len(cells[kind]):
            raise ValueError(message)
        if n_bad:
            warnings.warn(message, RuntimeWarning, stacklevel=3)
    return bad


def _n_bad(points: Tensor, kind: str, cells: Tensor) -> int:
    of = cell_type(kind)
    edges = torch.tensor(SHAPES[of.shape].edges, device=cells.device)
    return sum(int(_out_of_place(points[b], edges, of.order).sum()) for b in cells.split(_BLOCK))


def _out_of_place(nodes: Tensor, edges: Tensor, order: int) -> Tensor:
    """(E,), bool, for the coordinates `nodes` (E, B, D) of cells with vertex pairs `edges`."""
    n_vertices = int(edges.max()) + 1
    start, stop = nodes[:, edges[:, 0]], nodes[:, edges[:, 1]]
    along = torch.arange(1, order, device=nodes.device, dtype=nodes.dtype).unsqueeze(1) / order
    places = (start.unsqueeze(2) + along * (stop - start).unsqueeze(2)).flatten(1, 2)
    distance = torch.cdist(nodes[:, n_vertices : n_vertices + places.shape[1]], places)
    own = distance.diagonal(dim1=1, dim2=2)
    allowed = ((stop - start).norm(dim=2) / (2 * order)).repeat_interleave(order - 1, dim=1)
    return ((own > allowed) & (distance.amin(dim=2) < own)).any(dim=1)
