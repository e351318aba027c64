"""Numbering for locality: nodes that share a cell get numbers near each other.

Gathers from nodes, sums into them and products with a matrix then stay in the cache. Generators of
unstructured meshes number nodes in the order in which they were inserted, which is far from that.
"""

import numpy as np
import torch
from scipy.sparse.csgraph import reverse_cuthill_mckee
from torch import Tensor

from tensormesh.mesh.adjacency import cell_node_incidence
from tensormesh.mesh.arrays import ByType

SPREAD = 4.0
"""A numbering is local if the nodes of a cell differ by less than this many layers, on average."""


def local_order(cells: ByType, n_nodes: int, dim: int) -> Tensor | None:
    """Nodes in an order that is local.

    Parameters
    ----------
    cells
        Connectivity by type, {type: (E, B)}.
    n_nodes
        Number of nodes.
    dim
        Dimension of the cells.

    Returns
    -------
    Tensor or None
        (n_nodes,) int64, on the device of the cells; None where the numbers are local already.

    References
    ----------
    George and Liu, Computer Solution of Large Sparse Positive Definite Systems, 1981, section 4.2:
    the reverse Cuthill-McKee order.
    """
    if not cells or _is_local(cells, n_nodes, dim):
        return None
    incidence = cell_node_incidence(cells, n_nodes).astype(np.bool_)
    order = reverse_cuthill_mckee(incidence.T.tocsr() @ incidence, symmetric_mode=True)
    device = next(iter(cells.values())).device
    return torch.from_numpy(order.astype(np.int64)).to(device)


def _is_local(cells: ByType, n_nodes: int, dim: int) -> bool:
    spans = [conn.amax(1) - conn.amin(1) for conn in cells.values() if len(conn)]
    layer = n_nodes ** (1 - 1 / max(dim, 1))
    return not spans or float(torch.cat(spans).double().mean()) < SPREAD * max(layer, 1.0)
