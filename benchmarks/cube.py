"""The unit cube as arrays, for peers that read meshes and do not make this one."""

from itertools import permutations

import numpy as np
from numpy.typing import NDArray


def cube_points(n: tuple[int, int, int]) -> NDArray[np.float64]:
    """Points ``[(n0 + 1) (n1 + 1) (n2 + 1), 3]``, z fastest."""
    axes = [np.linspace(0.0, 1.0, k + 1) for k in n]
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 3)


def kuhn_tetrahedra(n: tuple[int, int, int]) -> NDArray[np.int64]:
    """Positive tetrahedra ``[6 n0 n1 n2, 4]``: paths from a box's low corner to its high one."""
    strides = np.array([(n[1] + 1) * (n[2] + 1), n[2] + 1, 1])
    low = np.stack(np.meshgrid(*map(np.arange, n), indexing="ij"), axis=-1).reshape(-1, 3) @ strides
    paths = []
    for axes in permutations(range(3)):
        path = np.cumsum([0, *strides[list(axes)]])
        even = np.linalg.det(np.eye(3)[list(axes)]) > 0
        paths.append(path if even else path[[0, 2, 1, 3]])
    return (low[:, None, None] + np.stack(paths)).reshape(-1, 4)
