"""Element tensors from coefficient tensors: pull back to the reference cell, then contract.

With ``G = dX/dx``, a physical gradient is ``G^T`` times a reference gradient. The coefficients
are moved to the reference cell instead of moving every basis gradient to the physical one, so
that the basis enters as one small table that all cells of a type share, and a block of element
tensors is one matrix product. Where nothing varies inside a cell, that table is summed over the
quadrature points beforehand. Cells are the last axis throughout: everything else runs along it.
"""

import torch
from torch import Tensor

from tensormesh.assemble.form import Form
from tensormesh.assemble.geometry import CellGeometry, Tabulation

# Whether a form uses the value of a function, and its gradient.
Inputs = tuple[bool, bool]


def element_matrices(
    form: Form, coefficients: Tensor, geometry: CellGeometry, table: Tabulation
) -> Tensor:
    """Element matrices of a bilinear form.

    Parameters
    ----------
    form
        The form; says which basis inputs it uses.
    coefficients
        ``[Q or 1, T, A, H * H, E or 1]``.
    geometry
        Geometry of the ``E`` cells.
    table
        Basis of the reference cell at the ``Q`` points.

    Returns
    -------
    Tensor
        ``[B * B, H * H, E]``: test function by trial function, block, cell.
    """
    return reference_matrices(form, pull_back(form, coefficients, geometry), table)


def pull_back(form: Form, coefficients: Tensor, geometry: CellGeometry) -> Tensor:
    """Coefficients of a bilinear form with respect to reference inputs, times the measure.

    Parameters as of `element_matrices`; ``[Q or 1, T, A, H * H, E]``.
    """
    test, trial = _uses(form, "v", "gradv"), _uses(form, "u", "gradu")
    return pull_back_inputs(coefficients, geometry, test, trial)


def pull_back_inputs(
    coefficients: Tensor, geometry: CellGeometry, test: Inputs, trial: Inputs
) -> Tensor:
    """As `pull_back`, for these inputs of either side."""
    c = _to_reference(coefficients, geometry.inverse, *test)
    c = _to_reference(c.transpose(1, 2), geometry.inverse, *trial)
    return c.transpose(1, 2) * geometry.measure[:, None, None, None]


def reference_matrices(form: Form, pulled: Tensor, table: Tabulation) -> Tensor:
    """Element matrices ``[B * B, H * H, E]`` from coefficients that `pull_back` gave."""
    test, trial = table.rows(*_uses(form, "v", "gradv")), table.rows(*_uses(form, "u", "gradu"))
    return matrices_of_rows(pulled, test, trial, table.weights)


def matrices_of_rows(pulled: Tensor, test: Tensor, trial: Tensor, weights: Tensor) -> Tensor:
    """As `reference_matrices`, of test and trial functions with these `Tabulation.rows`."""
    c = pulled.flatten(3)  # [Q or 1, T, A, H * H * E]
    test, trial, weights = test.to(c.dtype), trial.to(c.dtype), weights.to(c.dtype)
    if c.shape[0] == 1:
        reference = torch.einsum("q,qti,qaj->ijta", weights, test, trial)
        matrices = reference.flatten(2).flatten(0, 1) @ c[0].flatten(0, 1)
    else:
        half = (trial * weights[:, None, None]).mT.unsqueeze(1) @ c  # [Q, T, B, H * H * E]
        by_test = test.flatten(0, 1).t()
        by_trial = (by_test @ half.flatten(0, 1).flatten(1)).unflatten(1, half.shape[2:])
        matrices = by_trial.flatten(0, 1)
    return matrices.unflatten(1, pulled.shape[3:])


def element_vectors(
    form: Form, coefficients: Tensor, geometry: CellGeometry, table: Tabulation
) -> Tensor:
    """Element vectors of a linear form: ``[B, H, E]``.

    Parameters as of `element_matrices`, with coefficients ``[Q or 1, T, H, E or 1]``.
    """
    inputs = basis_inputs(form)
    return vectors_of_rows(coefficients, geometry, inputs, table.rows(*inputs), table.weights)


def vectors_of_rows(
    coefficients: Tensor, geometry: CellGeometry, inputs: Inputs, rows: Tensor, weights: Tensor
) -> Tensor:
    """As `element_vectors`, of functions with these inputs and `Tabulation.rows`."""
    c = _to_reference(coefficients, geometry.inverse, *inputs)
    c = c * geometry.measure[:, None, None]
    rows = rows.to(c.dtype) * weights[:, None, None]
    if c.shape[0] == 1:
        rows = rows.sum(0, keepdim=True)
    vectors = rows.flatten(0, 1).t() @ c.flatten(0, 1).flatten(1)
    return vectors.unflatten(1, (coefficients.shape[2], -1))


def basis_inputs(form: Form) -> Inputs:
    """Whether a linear form uses the value and the gradient of its basis."""
    return _uses(form, "u", "gradu") if form.of_kind("trial") else _uses(form, "v", "gradv")


def _uses(form: Form, value: str, gradient: str) -> Inputs:
    return form.uses(value), form.uses(gradient)


def _to_reference(c: Tensor, inverse: Tensor, with_value: bool, with_gradient: bool) -> Tensor:
    """Axis 1 from physical inputs ``(value, d/dx)`` to reference inputs ``(value, d/dX)``."""
    if not with_gradient:
        return c
    first = int(with_value)
    physical = c[:, first:].flatten(2, -2)  # [Q or 1, D, R, E or 1]
    if c.shape[-1] == 1 and c.shape[0] == 1:
        pulled = physical[0, ..., 0].t() @ inverse.to(c.dtype)
    else:
        pulled = _weighted(inverse.to(c.dtype), physical)
    pulled = pulled.unflatten(2, c.shape[2:-1])
    if not with_value:
        return pulled
    value = c[:, :1].expand(pulled.shape[0], 1, *pulled.shape[2:])
    return torch.cat([value, pulled], dim=1)


def _weighted(inverse: Tensor, c: Tensor) -> Tensor:
    """``sum_d inverse[q, k, d, e] c[q, d, r, e]``, one pass over the cells a direction."""
    pulled = inverse[:, :, 0].unsqueeze(2) * c[:, 0].unsqueeze(1)
    for direction in range(1, inverse.shape[2]):
        factor, term = inverse[:, :, direction].unsqueeze(2), c[:, direction].unsqueeze(1)
        pulled = torch.addcmul(pulled, factor, term)
    return pulled
