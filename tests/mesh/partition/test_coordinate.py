import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensormesh.mesh.partition.bisection import proportional_cut, recursive_bisection
from tensormesh.mesh.partition.coordinate import axis_ranks, coordinate_labels, quantised


def grid(*n):
    axes = np.meshgrid(*[(np.arange(m) + 0.5) / 10 for m in n], indexing="ij")
    return np.stack([axis.ravel() for axis in axes], axis=1)


@given(n=st.integers(1, 300), data=st.data())
def test_sizes_differ_by_one_at_most(n, data):
    """features | partition by coordinates: serial."""
    n_parts = data.draw(st.integers(1, n))
    labels = recursive_bisection(np.ones(n), n_parts, lambda cells, fraction: cells)
    sizes = np.bincount(labels, minlength=n_parts)
    assert len(sizes) == n_parts
    assert sizes.max() - sizes.min() <= 1
    assert (np.diff(labels) >= 0).all()


@given(weights=st.lists(st.floats(0, 10), min_size=1, max_size=60), data=st.data())
def test_no_part_is_empty_whatever_the_weights(weights, data):
    n_parts = data.draw(st.integers(1, len(weights)))
    labels = recursive_bisection(np.array(weights), n_parts, lambda cells, fraction: cells)
    assert set(labels.tolist()) == set(range(n_parts))


def test_cut_is_nearest_to_the_proportion():
    weights = np.array([5.0, 1.0, 1.0, 1.0, 1.0, 1.0])
    assert proportional_cut(weights, 1, 1) == 1
    assert proportional_cut(weights, 2, 1) == 3  # 7 of 10, or 6: 6.67 is wanted
    assert proportional_cut(weights[::-1], 1, 1) == 5


def test_regular_grid_in_eight_octants():
    x = grid(8, 8, 8)
    labels = coordinate_labels(x, 8, np.ones(512))
    octant = ((x > 0.4) @ [4, 2, 1]).astype(int)
    assert len(set(zip(labels.tolist(), octant.tolist(), strict=True))) == 8


def test_three_slices_along_the_longest_axis():
    x = grid(30, 5)
    labels = coordinate_labels(x, 3, np.ones(150))
    assert labels.tolist() == np.searchsorted([1.0, 2.0], x[:, 0]).tolist()


def test_layer_is_cut_in_one_step_whatever_the_numbering():
    # 7 columns of 7: the cut in half passes through the fourth, which must not be torn.
    shuffle = np.random.default_rng(0).permutation(49)
    x = grid(7, 7)[shuffle] * (1 + 1e-15)
    labels = coordinate_labels(x, 2, np.ones(49))
    middle = np.isclose(x[:, 0], 0.35)
    by_height = labels[middle][np.argsort(x[middle, 1])]
    assert np.count_nonzero(np.diff(by_height)) == 1
    assert np.bincount(labels).tolist() == [24, 25]


def test_labels_do_not_depend_on_rounding_or_scale():
    x = grid(9, 7, 5)
    noise = 1 + 1e-14 * np.random.default_rng(1).standard_normal(x.shape)
    labels = coordinate_labels(x, 6, np.ones(len(x)))
    assert np.array_equal(labels, coordinate_labels(x * noise, 6, np.ones(len(x))))
    assert np.array_equal(labels, coordinate_labels(1e-9 * x + 1e-9, 6, np.ones(len(x))))


def test_work_is_shared_out_by_weight():
    x = grid(40, 40)
    weights = np.where(x[:, 0] < 1.0, 9.0, 1.0)
    labels = coordinate_labels(x, 5, weights)
    work = np.bincount(labels, weights)
    assert work == pytest.approx(np.full(5, weights.sum() / 5), rel=0.03)
    assert np.ptp(np.bincount(labels)) > 100


def test_coincident_centroids_are_cut_by_number():
    labels = coordinate_labels(np.zeros((5, 2)), 5, np.ones(5))
    assert labels.tolist() == [0, 1, 2, 3, 4]


def test_ranks_order_each_axis():
    x = np.random.default_rng(2).random((20, 3))
    for axis, rank in enumerate([axis_ranks(quantised(x), a) for a in range(x.shape[1])]):
        assert np.array_equal(np.argsort(rank), np.argsort(x[:, axis]))
