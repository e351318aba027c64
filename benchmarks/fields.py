"""The data of the forms as functions of place, the same for every peer."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def probe(x: Array, n_unknowns: int) -> Array:
    """Smooth vector ``[n, n_unknowns]`` whose energy is compared, at nodes ``[n, 3]``."""
    wave = np.sin(2 * x[:, 0] + 1) * np.cos(3 * x[:, 1]) + x[:, 2] ** 2
    return np.stack([wave * (1 + i) + i * x[:, i] for i in range(n_unknowns)], axis=1)


def coefficient(x: Array, k: int) -> Array:
    """The `k`-th coefficient ``[n]``, between 1/2 and 3/2, at nodes or cell midpoints."""
    return 1 + 0.5 * np.sin(k + 3 * x[:, 0]) * np.cos(2 * x[:, 1] - x[:, 2])


def moved(x: Array, k: int, order: int) -> Array:
    """The `k`-th deformation of the cube.

    Curved for cells of order 1, so that each has another Jacobian. A shear for higher orders, where
    some peers move vertices and others all nodes.
    """
    turned = x[:, [1, 2, 0]]
    shift = turned if order > 1 else np.sin(2 * turned + k)
    return x + 0.05 / (1 + k) * shift
