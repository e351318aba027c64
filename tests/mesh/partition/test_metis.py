import sys

import numpy as np
import pytest
from scipy.sparse import block_diag, csr_array

from tensormesh.mesh.adjacency import cell_adjacency
from tensormesh.mesh.generators import gen_cube
from tensormesh.mesh.partition import metis
from tensormesh.mesh.partition.metis import fill_empty_parts, metis_labels

GRAPH = cell_adjacency(gen_cube(n=(4, 4, 3)))
N = 288


@pytest.mark.parametrize("n_parts", [1, 2, 7, 144, 200, 287, 288])
def test_no_part_is_empty_however_few_cells(n_parts):
    """features | partition by METIS: serial."""
    labels = metis_labels(GRAPH, n_parts, np.ones(N))
    assert set(labels.tolist()) == set(range(n_parts))
    assert labels.dtype == np.int64


def test_disconnected_graph():
    graph = csr_array(block_diag([GRAPH] * 3 + [csr_array((30, 30), dtype=np.int32)]).tocsr())
    sizes = np.bincount(metis_labels(graph, 4, np.ones(3 * N + 30)))
    assert sizes == pytest.approx(np.full(4, (3 * N + 30) / 4), rel=0.03)


def test_work_is_shared_out_by_weight():
    weights = np.linspace(0.001, 0.005, N)
    work = np.bincount(metis_labels(GRAPH, 3, weights), weights)
    assert work == pytest.approx(np.full(3, weights.sum() / 3), rel=0.03)


def test_empty_parts_take_from_the_largest():
    labels = fill_empty_parts(np.array([0, 3, 3, 3, 0, 3]), 4)
    assert np.bincount(labels).tolist() == [2, 1, 1, 2]
    assert fill_empty_parts(np.array([1, 0]), 2).tolist() == [1, 0]


def test_missing_pymetis_is_an_error_that_says_what_to_do(monkeypatch):
    monkeypatch.setitem(sys.modules, "pymetis", None)
    with pytest.raises(ImportError, match="pip install pymetis"):
        metis_labels(GRAPH, 2, np.ones(N))


def test_graph_beyond_32_bits_is_refused(monkeypatch):
    monkeypatch.setattr(metis, "INT32_MAX", 900)
    with pytest.raises(ValueError, match="METIS counts to 900"):
        metis_labels(GRAPH, 2, np.ones(N))
