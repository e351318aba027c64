"""Adjacency of a mesh as sparse 0/1 matrices: cells that share a facet, nodes that share a cell."""

from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array
from torch import Tensor

from tensormesh.element.facet import local_facets
from tensormesh.mesh.row_keys import row_keys
from tensormesh.sparse import SparseMatrix

if TYPE_CHECKING:
    from tensormesh.mesh.mesh import Mesh


def element_adjacency(mesh: "Mesh", element_type: str | None = None) -> SparseMatrix:
    """Cells that share a facet, as a matrix of float32 ones on the device of the mesh.

    Parameters
    ----------
    mesh, element_type
        As for `cell_adjacency`.

    Returns
    -------
    SparseMatrix
        (n_cells, n_cells), symmetric, no diagonal, sorted by row and column.
    """
    return _float_ones(cell_adjacency(mesh, element_type), mesh.device)


def node_adjacency(mesh: "Mesh", element_type: str | None = None) -> SparseMatrix:
    """Nodes that share a cell, as a matrix of float32 ones on the device of the mesh.

    Parameters
    ----------
    mesh, element_type
        As for `node_graph`.

    Returns
    -------
    SparseMatrix
        (n, n), symmetric, diagonal included, sorted by row and column.
    """
    return _float_ones(node_graph(mesh, element_type), mesh.device)


def cell_adjacency(mesh: "Mesh", element_type: str | None = None) -> csr_array:
    """Dual graph of the mesh: cells that share a facet, whatever their types.

    Cells are numbered through the top-dimension types in order. Facets are compared by their
    vertices, so cells of different order are neighbours too. A facet that more than two cells have
    makes each two of them neighbours.

    Parameters
    ----------
    mesh
        Any mesh.
    element_type
        Only the cells of that type; None: the top cells.

    Returns
    -------
    csr_array
        (n_cells, n_cells), symmetric, int32 ones, empty diagonal, sorted columns.

    Raises
    ------
    KeyError
        If the mesh has no cells of that type.
    """
    top = {name: conn.cpu() for name, conn in _chosen(mesh, element_type).items()}
    n_cells = sum(len(conn) for conn in top.values())
    sizes = sorted({len(facet.vertices) for name in top for facet in local_facets(name)})
    pairs = [np.empty((2, 0), np.int64)]
    for n_vertices in sizes:
        rows, numbers = facet_rows(top, n_vertices)
        pairs.append(numbers.numpy()[equal_pairs(row_keys(rows, mesh.n_points).numpy())])
    one, other = np.concatenate(pairs, axis=1)
    return ones(np.concatenate([one, other]), np.concatenate([other, one]), n_cells, n_cells)


def node_graph(mesh: "Mesh", element_type: str | None = None) -> csr_array:
    """Nodes that share a cell, each with itself.

    Parameters
    ----------
    mesh
        Any mesh.
    element_type
        Only the cells of that type; None: the top cells.

    Returns
    -------
    csr_array
        (n, n), symmetric, int32 ones; the row of a point without a cell is empty.

    Raises
    ------
    KeyError
        If the mesh has no cells of that type.
    """
    incidence = cell_node_incidence(_chosen(mesh, element_type), mesh.n_points)
    adjacency = incidence.T.tocsr() @ incidence
    adjacency.data[:] = 1
    adjacency.sort_indices()
    return adjacency


def cell_node_incidence(cells: dict[str, Tensor], n_points: int) -> csr_array:
    """Cells against their nodes, the blocks of `cells` one below the other.

    Parameters
    ----------
    cells
        Connectivity by type, {type: (E, B)}.
    n_points
        Number of columns.

    Returns
    -------
    csr_array
        (n_cells, n_points), int32 ones, a repeated node once.
    """
    blocks = [conn.cpu().numpy() for conn in cells.values()]
    width = np.repeat([block.shape[1] for block in blocks], [len(block) for block in blocks])
    rows = np.repeat(np.arange(len(width)), width)
    nodes = np.concatenate([np.empty(0, np.int64), *(block.ravel() for block in blocks)])
    return ones(rows, nodes, len(width), n_points)


def _chosen(mesh: "Mesh", element_type: str | None) -> dict[str, Tensor]:
    if element_type is None:
        return mesh.top_cells()
    return {element_type: mesh.cells[element_type]}


def _float_ones(graph: csr_array, device: torch.device) -> SparseMatrix:
    coo = graph.tocoo()
    row, col = (torch.from_numpy(index.astype(np.int64)).to(device) for index in coo.coords)
    values = torch.ones(len(row), dtype=torch.float32, device=device)
    return SparseMatrix(values, row, col, coo.shape)


def ones(rows: NDArray, cols: NDArray, n_rows: int, n_cols: int) -> csr_array:
    """Sparse matrix with int32 ones at the given places, each once."""
    values = np.ones(len(rows), np.int32)
    matrix = coo_array((values, (rows, cols)), shape=(n_rows, n_cols)).tocsr()
    matrix.sum_duplicates()
    matrix.data[:] = 1
    return matrix


def facet_rows(cells: dict[str, Tensor], n_vertices: int) -> tuple[Tensor, Tensor]:
    """Facets with `n_vertices` vertices of all cells.

    Parameters
    ----------
    cells
        Connectivity by type, {type: (E, B)}; cells are numbered through the types in order.
    n_vertices
        Number of vertices of the facets that are wanted.

    Returns
    -------
    rows, numbers
        (F, n_vertices) vertices of each in increasing order, and (F,) the cell that has it.
    """
    rows, numbers, first = [], [], 0
    for name, conn in cells.items():
        local = [f.vertices for f in local_facets(name) if len(f.vertices) == n_vertices]
        vertices = [vertex for facet in local for vertex in facet]
        rows.append(conn[:, vertices].reshape(len(conn) * len(local), n_vertices))
        numbers.append(
            torch.arange(first, first + len(conn), device=conn.device).repeat_interleave(len(local))
        )
        first += len(conn)
    return torch.cat(rows).sort(dim=1).values, torch.cat(numbers)


def equal_pairs(keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """All pairs of positions at which `keys` (n,) has the same value, (2, n_pairs)."""
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    pairs, distance = [], 1
    # Equal keys are neighbours now; only keys that occur k times need a distance of k - 1.
    while len(same := np.flatnonzero(keys[distance:] == keys[:-distance])):
        pairs.append(np.stack([order[same], order[same + distance]]))
        distance += 1
    return np.concatenate([np.empty((2, 0), np.int64), *pairs], axis=1)
