"""Is a second-order mesh in the node order that the cell type says? Mid-nodes tell."""

import warnings

import torch
from torch import Tensor

from tensormesh.element.cell_type import cell_type
from tensormesh.element.reference import SHAPES

_BLOCK = 16384
"""Cells looked at together, so that the distances between all edges of a cell stay small."""


def check_node_ordering(
    points: Tensor, cells: dict[str, Tensor], raise_on_error: bool = True
) -> dict[str, int]:
    """Count the cells whose mid-edge nodes belong to other edges.

    A mid-edge node is out of place if the middle of another edge of its cell is nearer than that of
    its own, and its own is further away than a quarter of the edge: curved edges are not.

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
            f"{n_bad} of {len(cells[kind])} cells of type {kind!r} have mid-edge nodes nearer to"
            " another edge than to their own: their nodes are not in the order of meshio (VTK)."
        )
        if n_bad and 2 * n_bad >= len(cells[kind]):
            raise ValueError(message)
        if n_bad:
            warnings.warn(message, RuntimeWarning, stacklevel=3)
    return bad


def _n_bad(points: Tensor, kind: str, cells: Tensor) -> int:
    edges = torch.tensor(SHAPES[cell_type(kind).shape].edges, device=cells.device)
    return sum(int(_out_of_place(points[b], edges).sum()) for b in cells.split(_BLOCK))


def _out_of_place(nodes: Tensor, edges: Tensor) -> Tensor:
    """(E,), bool, for the coordinates `nodes` (E, B, D) of cells with vertex pairs `edges`."""
    n_vertices = int(edges.max()) + 1
    start, stop = nodes[:, edges[:, 0]], nodes[:, edges[:, 1]]
    mid_nodes = nodes[:, n_vertices : n_vertices + len(edges)]
    distance = torch.cdist(mid_nodes, (start + stop) / 2)
    own = distance.diagonal(dim1=1, dim2=2)
    far = own > (stop - start).norm(dim=2) / 4
    return (far & (distance.amin(dim=2) < own)).any(dim=1)
