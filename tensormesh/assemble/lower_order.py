"""Fields of a lower order than the cells: which nodes of the cells carry them.

A field of order ``q`` has the nodes of cells of its order, which in general are none of those of
cells of order ``p``: the middle of an edge is no node of a cubic cell. Each unknown of the field is
carried by a node of the same vertex, edge, face or inside, by the nearest one. Where several are as
near, the first in the numbering of the mesh is chosen, for all cells alike.
"""

from collections.abc import Mapping
from functools import cache

import torch
from torch import Tensor

from tensormesh.element.cell_type import cell_name, cell_type
from tensormesh.element.lagrange import reference_nodes, tabulate

_ROUNDING = 1e-9


@cache
def candidates(kind: str, order: int) -> Tensor:
    """Nodes of a cell that may carry each unknown of a field.

    They depend on the entity (edge, face) alone, and go over into each other with its symmetries,
    so that the cells that share it agree.

    Parameters
    ----------
    kind
        Cell type, ``B`` nodes.
    order
        Order of the field, not above that of the cell: ``b`` basis functions.

    Returns
    -------
    Tensor
        bool ``[b, B]``; a node may carry one unknown at most.
    """
    shape = cell_type(kind).shape
    # Barycentric coordinates and what they are on other shapes: which vertices are near.
    own, nodes = (_at_nodes(cell_name(shape, 1), x) for x in (cell_name(shape, order), kind))
    same_entity = ((own != 0).unsqueeze(1) == (nodes != 0)).all(2)
    distance = (own.unsqueeze(1) - nodes).norm(dim=2).masked_fill(~same_entity, torch.inf)
    return distance <= distance.amin(1, keepdim=True) + _ROUNDING


@cache
def carried_basis(kind: str, order: int) -> Tensor:
    """Basis functions of a field at the nodes of a cell, float64 ``[B, B]``.

    Parameters as of `candidates`. Column ``j`` is the function of the unknown that node ``j`` may
    carry, zero if there is none. The cell's own basis times this matrix is the basis of the field.
    """
    own = _at_nodes(cell_name(cell_type(kind).shape, order), kind)
    return own @ candidates(kind, order).to(own.dtype)


def carriers(cells: Mapping[str, Tensor], order: int, ids: Tensor) -> Tensor:
    """Nodes that carry the unknowns of a field, bool ``[n]``.

    Parameters
    ----------
    cells
        Cell type -> int64 ``[E, B]``.
    order
        Order of the field.
    ids
        Number of each node ``[n]``; parts of one mesh choose alike by those of the whole mesh.
    """
    found = torch.zeros(len(ids), dtype=torch.bool, device=ids.device)
    for kind, nodes in cells.items():
        if cell_type(kind).order == order:
            found[nodes] = True
            continue
        for choice in candidates(kind, order):
            among = nodes[:, choice.nonzero().flatten().to(nodes.device)]
            first = ids[among].argmin(dim=1, keepdim=True)
            found[among.gather(1, first)] = True
    return found


def points_of_field(points: Tensor, cells: Mapping[str, Tensor], order: int) -> Tensor:
    """Coordinates ``[n, D]`` of the unknowns that nodes may carry; of other nodes, their own.

    Parameters
    ----------
    points
        Of the nodes ``[n, D]``.
    cells, order
        As of `carriers`.
    """
    found = points.clone()
    for kind, nodes in cells.items():
        places = _at_nodes(kind, cell_name(cell_type(kind).shape, order)).to(points)
        unknown, node = candidates(kind, order).nonzero(as_tuple=True)
        found[nodes[:, node]] = torch.einsum("ub,ebd->eud", places[unknown], points[nodes])
    return found


def _at_nodes(basis: str, nodes: str) -> Tensor:
    """Basis of one cell type at the nodes of another, zeros exact."""
    values, _ = tabulate(basis, reference_nodes(nodes))
    return torch.where(values.abs() < _ROUNDING, 0.0, values)
