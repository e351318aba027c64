"""The first ten frequencies of a clamped plate, in one process and on two ranks."""

from functools import cache
from typing import Any

import numpy as np
import pytest
from torch import Tensor

from tensormesh.distributed import distributed
from tensormesh.distributed.device_mesh import DeviceMesh
from tests.distributed.cases import dmesh_of
from tests.rank_pool import RankPool
from tests.sparse.plate import LEISSA, bounds, kirchhoff, matrices, plate

T, ORDER = 1e-3, 4
reference = cache(kirchhoff)


def frequencies(n: int, t: float = T) -> np.ndarray:
    mesh = plate(n, ORDER)
    K, M = matrices(mesh, t, lambda cls, **kw: cls.from_mesh(mesh, **kw))
    return K.eigsh(10, "SA", M=M)[0].sqrt().numpy()


def within_bounds(found: np.ndarray, n: int, t: float = T) -> None:
    exact = reference(12, 10)
    below, above = bounds(exact, t, 1 / n, ORDER)
    assert (found / exact - 1 > -below).all()
    assert (found / exact - 1 < above).all()


def test_reference_is_what_is_published() -> None:
    """Upper bounds of a few beam functions: above ours, and by little."""
    ours = reference(12, 10)[:6]
    assert (ours < LEISSA).all()
    assert (LEISSA < 1.0006 * ours).all()


def test_ten_frequencies_of_a_clamped_plate() -> None:
    found = frequencies(8)
    within_bounds(found, 8)
    assert np.abs(found / reference(12, 10) - 1).max() < 1e-4


def test_a_thick_plate_is_slower() -> None:
    """By the square of its thickness, as Mindlin's theory has it."""
    thin, thick = (1 - frequencies(6, t) / reference(12, 10) for t in (0.01, 0.02))
    within_bounds(frequencies(6, 0.02), 6, 0.02)
    np.testing.assert_allclose(thick / thin, 4, rtol=0.15)


class Inverse:
    """Of a small matrix, as a preconditioner: the plate is too stiff in shear for simpler ones."""

    name = "inverse"

    def __init__(self, K: Any) -> None:
        self._K = K

    def __matmul__(self, r: Tensor) -> Tensor:
        return self._K.solve(r, method="direct")


def on_ranks(device_mesh: DeviceMesh, n: int) -> np.ndarray:
    mesh = plate(n, ORDER)
    dmesh = dmesh_of(mesh, device_mesh)
    K, M = matrices(mesh, T, lambda cls, **kw: distributed(cls).from_mesh(dmesh, **kw))
    values, _ = K.eigsh(10, "SA", M=M, preconditioner=Inverse(K), rtol=1e-6)
    return values.sqrt().numpy()


@pytest.mark.parametrize("n", [2])
def test_ranks_find_the_frequencies_of_one_process(ranks: RankPool, n: int) -> None:
    expected = frequencies(6)
    for found in ranks(n, on_ranks, 6):
        within_bounds(found, 6)
        np.testing.assert_allclose(found, expected, rtol=1e-8)
