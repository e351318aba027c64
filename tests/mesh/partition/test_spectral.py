import numpy as np
import pytest
from scipy.sparse import block_diag, csr_array, diags_array, eye_array, kron

from tensormesh.errors import NotConvergedError
from tensormesh.mesh.adjacency import cell_adjacency
from tensormesh.mesh.generators import gen_cube
from tensormesh.mesh.partition import fiedler
from tensormesh.mesh.partition.aggregation import coarsened
from tensormesh.mesh.partition.fiedler import Multigrid, fiedler_vectors
from tensormesh.mesh.partition.spectral import cut_size, smooth_cut, spectral_labels


def path(n):
    return diags_array([np.ones(n - 1)] * 2, offsets=[-1, 1], dtype=np.int32).tocsr()


def grid(n, m):
    """Four neighbours each, n along the first axis."""
    along = kron(path(n), eye_array(m, dtype=np.int32))
    across = kron(eye_array(n, dtype=np.int32), path(m))
    return csr_array(along + across)


def crossing(graph, labels):
    coo = graph.tocoo()
    return np.count_nonzero(labels[coo.row] != labels[coo.col]) // 2


@pytest.mark.parametrize("n", [2, 50, 3000, 20000])
def test_lowest_eigenvalue_of_a_path(n):
    # 4 sin^2(pi / 2n), Fiedler 1973.
    values, vectors = fiedler_vectors(path(n))
    assert values[0] == pytest.approx(4 * np.sin(np.pi / (2 * n)) ** 2, rel=1e-3)
    assert (np.diff(vectors[:, 0]) > 0).all() or (np.diff(vectors[:, 0]) < 0).all()


def test_iterative_solver_agrees_with_a_dense_one():
    graph = grid(60, 23).astype(float)
    laplacian = np.diag(graph.sum(axis=1)) - graph.toarray()
    values, vectors = fiedler_vectors(graph)
    assert values[0] == pytest.approx(np.linalg.eigvalsh(laplacian)[1], rel=1e-3)
    residual = laplacian @ vectors[:, 0] - values[0] * vectors[:, 0]
    assert np.linalg.norm(residual) <= 0.01 * values[0]


@pytest.mark.parametrize("n_parts", [2, 3, 5, 7])
def test_path_is_cut_into_pieces(n_parts):
    labels = spectral_labels(path(1500), n_parts, np.ones(1500))
    assert crossing(path(1500), labels) == n_parts - 1
    assert np.ptp(np.bincount(labels, minlength=n_parts)) <= 1


def test_rectangle_is_cut_across_its_long_side():
    """features | partition by spectra: serial."""
    graph = grid(60, 20)
    assert crossing(graph, spectral_labels(graph, 2, np.ones(1200))) == 20
    assert crossing(graph, spectral_labels(graph, 3, np.ones(1200))) == 40


def test_square_is_cut_straight_although_its_fiedler_vector_is_not_unique():
    # A cut along the diagonal costs about twice as much.
    graph = grid(20, 20)
    assert crossing(graph, spectral_labels(graph, 2, np.ones(400))) <= 22


def test_components_are_kept_whole_where_possible():
    graph = csr_array(block_diag([path(300)] * 4).tocsr())
    labels = spectral_labels(graph, 4, np.ones(1200))
    assert crossing(graph, labels) == 0
    labels = spectral_labels(graph, 3, np.ones(1200))
    assert np.bincount(labels).tolist() == [400, 400, 400]
    assert crossing(graph, labels) <= 2


def test_nodes_without_any_edge():
    labels = spectral_labels(csr_array((10, 10), dtype=np.int32), 3, np.ones(10))
    assert sorted(np.bincount(labels).tolist()) == [3, 3, 4]


def test_star_of_many_leaves():
    leaves = np.arange(1, 3000)
    rows = np.concatenate([leaves, 0 * leaves])
    cols = np.concatenate([0 * leaves, leaves])
    star = csr_array((np.ones(len(rows), np.int32), (rows, cols)))
    assert fiedler_vectors(star)[0][0] == pytest.approx(1.0)
    assert np.bincount(spectral_labels(star, 3, np.ones(3000))).tolist() == [1000] * 3


def test_weights_move_the_cut():
    weights = np.where(np.arange(1000) < 100, 9.0, 1.0)
    labels = spectral_labels(path(1000), 2, weights)
    assert np.bincount(labels, weights) == pytest.approx([900, 900], abs=9)


def test_aggregates_are_small_and_keep_the_weights_between_them():
    graph = cell_adjacency(gen_cube(n=(8, 8, 8))).astype(float)
    coarse, aggregate = coarsened(graph, np.random.default_rng(0))
    sizes = np.bincount(aggregate)
    assert sizes.min() >= 4
    assert sizes.max() <= 16
    assert coarse.shape == (len(sizes), len(sizes))
    assert coarse.sum() / 2 == crossing(graph, aggregate)
    assert not coarse.diagonal().any()


def test_multigrid_cycle_is_symmetric_and_keeps_constants():
    graph = grid(40, 30).astype(float)
    laplacian = csr_array(np.diag(graph.sum(axis=1)) - graph.toarray())
    multigrid = Multigrid(graph, laplacian)
    assert len(multigrid.levels) >= 1
    for level in multigrid.levels:
        ones = np.ones(level.prolongation.shape[1])
        assert level.prolongation @ ones == pytest.approx(np.ones(level.matrix.shape[0]))
    x, y = np.random.default_rng(0).standard_normal((2, 1200))
    assert y @ multigrid.cycle(x)[:, 0] == pytest.approx(x @ multigrid.cycle(y)[:, 0])


def test_smoothing_straightens_a_ragged_cut():
    graph = grid(40, 20).astype(float)
    column = np.repeat(np.arange(40), 20)
    ragged = column + 6.0 * np.random.default_rng(0).random(800)
    below = ragged < np.sort(ragged)[400]
    values, after = smooth_cut(graph, ragged, 400)
    assert values[after].max() <= values[~after].min()
    assert cut_size(graph, below) > 40
    assert cut_size(graph, after) <= 25
    assert np.count_nonzero(after) == 400


def test_solver_that_does_not_converge_says_what_to_do(monkeypatch):
    monkeypatch.setattr(fiedler, "MAX_CYCLES", 1)
    monkeypatch.setattr(fiedler, "ITERATIONS", 1)
    with pytest.raises(NotConvergedError, match=r"method='metis' or method='coordinate'"):
        spectral_labels(path(20000), 2, np.ones(20000))
