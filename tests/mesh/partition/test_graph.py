import numpy as np
import pytest
import torch
from scipy.sparse import coo_matrix, csr_array, eye_array

from tensormesh.mesh.partition import graph_partition
from tensormesh.mesh.partition.graph import undirected
from tensormesh.sparse import SparseMatrix

# Two triangles joined by one edge, given in one direction, with a diagonal and odd values.
ROW = [0, 1, 2, 3, 4, 5, 2, 0]
COL = [1, 2, 0, 4, 5, 3, 3, 0]
VALUES = [0.5, -1.0, 2.0, 1.0, 1.0, 1.0, 7.0, 3.0]


@pytest.mark.parametrize("method", ["spectral", "metis"])
@pytest.mark.parametrize(
    "adjacency",
    [
        coo_matrix((VALUES, (ROW, COL))),
        csr_array(coo_matrix((VALUES, (ROW, COL)))),
        SparseMatrix(torch.tensor(VALUES), torch.tensor(ROW), torch.tensor(COL), (6, 6)),
    ],
    ids=["spmatrix", "sparray", "SparseMatrix"],
)
def test_bridge_is_cut(adjacency, method):
    """features | graph_partition: serial."""
    labels = graph_partition(adjacency, 2, method)
    assert labels.dtype == torch.int64
    assert len(set(labels[:3].tolist())) == len(set(labels[3:].tolist())) == 1
    assert labels[0] != labels[3]


def test_graph_is_made_symmetric():
    graph = undirected(coo_matrix((VALUES, (ROW, COL)))).toarray()
    assert np.array_equal(graph, graph.T)
    assert graph.sum() == 14
    assert set(np.unique(graph)) == {0, 1}


def test_default_method_is_spectral_and_takes_every_number_of_parts():
    labels = graph_partition(coo_matrix((VALUES, (ROW, COL)), shape=(6, 6)), 6)
    assert sorted(labels.tolist()) == list(range(6))


def test_wrong_arguments_are_named():
    with pytest.raises(ValueError, match=r"'coordinate'; known are spectral, metis"):
        graph_partition(eye_array(4), 2, "coordinate")
    with pytest.raises(ValueError, match="n_parts = 5 is impossible with 4 nodes"):
        graph_partition(eye_array(4), 5)
    with pytest.raises(ValueError, match=r"square, got shape \(2, 3\)"):
        graph_partition(csr_array((2, 3)), 2)
    with pytest.raises(TypeError, match="ndarray"):
        graph_partition(np.eye(3), 2)
