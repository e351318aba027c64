"""Which part owns a node: the lowest of those that have a cell on it."""

import torch
from torch import Tensor

from tensormesh.mesh.mesh import Mesh


def node_owners(mesh: Mesh, labels: Tensor) -> Tensor:
    """Owning part of each node of `mesh`.

    Parameters
    ----------
    mesh
        The global mesh.
    labels
        Part of each top-dimension cell, int64 ``[n_cells]``, types in order.

    Returns
    -------
    Tensor
        int64 ``[n_points]``; 0 for points that no cell uses.
    """
    beyond = int(labels.max()) + 1
    owner = torch.full((mesh.n_points,), beyond, dtype=torch.int64, device=labels.device)
    cells = mesh.top_cells()
    for cell, label in zip(
        cells.values(), labels.split([c.shape[0] for c in cells.values()]), strict=True
    ):
        node = cell.to(labels.device)
        owner.scatter_reduce_(0, node.flatten(), label.repeat_interleave(node.shape[1]), "amin")
    return owner.masked_fill_(owner == beyond, 0)
