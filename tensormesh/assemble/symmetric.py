"""Element matrices of symmetric coefficients, which need half of the entries.

Coefficients with the same value for (test input, trial input) and (trial input, test input) give
symmetric element matrices. Then the pairs of inputs, six instead of nine in three dimensions, and
the pairs of basis functions are taken once each. Where the coefficients vary inside a cell, one
product with a table of all quadrature points and pairs replaces one for the test functions and one
for the trial functions: it does as many operations and needs no intermediate for each point.
"""

from functools import reduce

import torch
from torch import Tensor

from tensormesh.assemble.form import Form
from tensormesh.assemble.geometry import CellGeometry, Tabulation


def is_symmetric(form: Form, tensor: Tensor) -> bool:
    """Whether coefficients ``[T, A, k]`` of test and trial inputs are symmetric, for each ``k``."""
    same = form.uses("u") == form.uses("v") and form.uses("gradu") == form.uses("gradv")
    return same and torch.equal(tensor, tensor.transpose(0, 1))


def pull_back(form: Form, tensor: Tensor, geometry: CellGeometry) -> Tensor:
    """Symmetric coefficients with respect to reference inputs, times the measure.

    Parameters
    ----------
    form
        Says which basis inputs it uses.
    tensor
        ``[T, A, k]``, the same everywhere.
    geometry
        Geometry of the ``E`` cells.

    Returns
    -------
    Tensor
        ``[Q or 1, S, k, E]``, pairs of inputs ``S``: (0, 0), (0, 1), ..., (1, 1), ...
    """
    inputs = _inputs(form, geometry)
    halves = [_combined(row, tensor) for row in inputs]
    pairs = [
        _product(halves[t], inputs[a]) for t in range(len(inputs)) for a in range(t, len(inputs))
    ]
    n_points, n_cells = geometry.measure.shape
    shape = n_points, tensor.shape[2], n_cells
    return torch.stack([p.expand(shape) for p in pairs], 1) * geometry.measure[:, None, None]


_Row = list[Tensor | None]
"""What multiplies each physical input, ``[Q, 1 or k, E]``; None for nothing."""


def _inputs(form: Form, geometry: CellGeometry) -> list[_Row]:
    """Reference inputs by physical ones: the value, then derivatives by the chain rule."""
    _, tdim, gdim, _ = geometry.inverse.shape
    value, gradient = form.uses("v"), form.uses("gradv")
    rows: list[_Row] = []
    if value:
        one = torch.ones_like(geometry.measure).unsqueeze(1)
        rows.append([one, *[None] * (gdim if gradient else 0)])
    for k in range(tdim if gradient else 0):
        by_direction = geometry.inverse[:, k].unsqueeze(2).unbind(1)
        rows.append([*[None] * value, *by_direction])
    return rows


def _combined(row: _Row, tensor: Tensor) -> _Row:
    """``sum_d row[d] tensor[d, e]`` for each ``e``; zeros of the tensor cost nothing."""
    found: _Row = []
    zero, one = (tensor == 0).all(2).tolist(), (tensor == 1).all(2).tolist()
    for e in range(tensor.shape[1]):
        terms = [
            x if one[d][e] else x * tensor[d, e].unsqueeze(1)
            for d, x in enumerate(row)
            if x is not None and not zero[d][e]
        ]
        found.append(reduce(torch.add, terms) if terms else None)
    return found


def _product(row: _Row, other: _Row) -> Tensor:
    both = [(x, y) for x, y in zip(row, other, strict=True) if x is not None and y is not None]
    if not both:
        present = next(x for x in (*row, *other) if x is not None)
        return torch.zeros_like(present)
    (x, y), *rest = both
    return reduce(lambda total, pair: torch.addcmul(total, *pair), rest, x * y)


class SymmetricTable:
    """The basis of a cell type, in products of test and trial functions.

    Parameters
    ----------
    form
        Says which basis inputs it uses.
    table
        Basis at the ``Q`` points.
    """

    def __init__(self, form: Form, table: Tabulation) -> None:
        rows = table.rows(form.uses("v"), form.uses("gradv"))
        t, a = torch.triu_indices(rows.shape[1], rows.shape[1], device=rows.device)
        self._left, self._right = rows[:, t], rows[:, a] * table.weights[:, None, None]
        self._twice = (t != a).to(rows)[:, None, None]
        self._n_basis = rows.shape[2]
        self._whole: Tensor | None = None
        self._half: Tensor | None = None

    def matrices(self, pulled: Tensor) -> Tensor:
        """Element matrices ``[B * B, k, E]`` from coefficients ``[Q or 1, S, k, E]``."""
        c = pulled.flatten(0, 1).flatten(1)
        if pulled.shape[0] == 1:
            matrices = self._summed().to(c.dtype) @ c
        else:
            matrices = (self._by_point().to(c.dtype) @ c).index_select(0, self._expanded(c.device))
        return matrices.unflatten(1, pulled.shape[2:])

    def _summed(self) -> Tensor:
        """Integrals ``[B * B, S]`` over the reference cell."""
        if self._whole is None:
            products = torch.einsum("qsi,qsj->sij", self._left, self._right)
            self._whole = (products + self._twice * products.mT).flatten(1).t().contiguous()
        return self._whole

    def _by_point(self) -> Tensor:
        """Contributions ``[B (B + 1) / 2, Q * S]`` of each point to the upper halves."""
        if self._half is None:
            i, j = torch.triu_indices(self._n_basis, self._n_basis, device=self._left.device)
            here = self._left[..., i] * self._right[..., j]
            there = self._left[..., j] * self._right[..., i]
            half = here + self._twice.squeeze(-1) * there
            self._half = half.flatten(0, 1).t().contiguous()
        return self._half

    def _expanded(self, device: torch.device) -> Tensor:
        """Place in the upper half of each entry of the whole matrix, ``[B * B]``."""
        n = self._n_basis
        i, j = torch.triu_indices(n, n, device=device)
        places = torch.empty(n, n, dtype=torch.int64, device=device)
        places[i, j] = places[j, i] = torch.arange(len(i), device=device)
        return places.flatten()
