"""Quadrature on the reference cells: basix's rules with positive weights."""

from functools import lru_cache

import basix
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tensormesh.element.cell_type import cell_type
from tensormesh.element.reference import SHAPES

# basix's default on tetrahedra of degree 3, 7 and 8 has negative weights, with which a mass matrix
# can be indefinite. The rules of Xiao and Gimbutas (2010) are positive and no larger.
_XIAO_GIMBUTAS_DEGREES = {"triangle": range(1, 31), "tetra": range(1, 16)}


def quadrature(name: str, degree: int) -> tuple[Tensor, Tensor]:
    """Rule on a reference cell, exact up to `degree`.

    Exact for polynomials of total degree `degree` on simplices and pyramids, and of that degree in
    each direction on tensor cells. On pyramids it is exact for the rational basis functions as
    well: in collapsed coordinates they are polynomials.

    Parameters
    ----------
    name
        A cell type or shape, for instance ``"tetra10"`` or ``"tetra"``.
    degree
        Degree of exactness, 0 or more.

    Returns
    -------
    points
        (Q, tdim), float64, inside the reference cell.
    weights
        (Q,), float64, positive; they sum to the measure of the reference cell.

    Raises
    ------
    KeyError
        If the cell type is not supported.
    ValueError
        If `degree` is negative or no integer.
    """
    shape = cell_type(name).shape
    if not isinstance(degree, int) or isinstance(degree, bool) or degree < 0:
        raise ValueError(f"degree must be an integer of 0 or more, got {degree!r}.")
    points, weights = _rule(shape, degree)
    return torch.from_numpy(points.copy()), torch.from_numpy(weights.copy())


@lru_cache(maxsize=512)
def _rule(shape: str, degree: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    if shape == "vertex":
        return np.zeros((1, 0)), np.ones(1)
    tabulated = degree in _XIAO_GIMBUTAS_DEGREES.get(shape, ())
    points, weights = basix.make_quadrature(
        basix.CellType[SHAPES[shape].basix],
        degree,
        rule=basix.QuadratureType.xiao_gimbutas if tabulated else basix.QuadratureType.default,
    )
    return np.asarray(points), np.asarray(weights)
