"""Element tensors from coefficient tensors: pull back to the reference cell, then contract.

With ``G = dX/dx``, a physical gradient is ``G^T`` times a reference gradient. The coefficients
are moved to the reference cell instead of moving every basis gradient to the physical one, so
that the basis enters as one small table that all cells of a type share. Where nothing varies
inside a cell, that table is summed over the quadrature points beforehand, and an element matrix
is one row of a matrix product.
"""

import torch
from torch import Tensor

from tensormesh.assemble.form import Form
from tensormesh.assemble.geometry import CellGeometry, Tabulation


def element_matrices(
    form: Form, coefficients: Tensor, geometry: CellGeometry, table: Tabulation
) -> Tensor:
    """Element matrices of a bilinear form.

    Parameters
    ----------
    form
        The form; says which basis inputs it uses.
    coefficients
        ``[E or 1, Q or 1, T, A]`` or with a trailing ``[H, H]``.
    geometry
        Geometry of the ``E`` cells.
    table
        Basis of the reference cell at the ``Q`` points.

    Returns
    -------
    Tensor
        ``[E, B, B, H * H]``: test function, trial function, block.
    """
    c = coefficients.flatten(4) if coefficients.dim() > 4 else coefficients.unsqueeze(4)
    c = _to_reference(c, geometry.inverse, form.uses("v"), form.uses("gradv"))
    c = _to_reference(c.transpose(2, 3), geometry.inverse, form.uses("u"), form.uses("gradu"))
    c = c.transpose(2, 3) * geometry.measure[..., None, None, None]
    test = table.rows(form.uses("v"), form.uses("gradv")).to(c.dtype)
    trial = table.rows(form.uses("u"), form.uses("gradu")).to(c.dtype)
    weights = table.weights.to(c.dtype)
    n_basis = table.values.shape[1]
    if c.shape[1] == 1:
        reference = torch.einsum("q,qti,qaj->taij", weights, test, trial).flatten(2).flatten(0, 1)
        blocks = c.flatten(0, 1).flatten(1, 2).mT @ reference
        return blocks.mT.unflatten(1, (n_basis, n_basis))
    half = torch.einsum("eqtah,qaj->eqtjh", c, trial * weights[:, None, None])
    return torch.einsum("qti,eqtjh->eijh", test, half)


def element_vectors(
    form: Form, coefficients: Tensor, geometry: CellGeometry, table: Tabulation
) -> Tensor:
    """Element vectors of a linear form: ``[E, B, H]``.

    Parameters as of `element_matrices`, with coefficients ``[E or 1, Q or 1, T]`` or with a
    trailing ``[H]``.
    """
    c = coefficients if coefficients.dim() > 3 else coefficients.unsqueeze(3)
    value, gradient = basis_inputs(form)
    c = _to_reference(c, geometry.inverse, value, gradient) * geometry.measure[..., None, None]
    rows = table.rows(value, gradient).to(c.dtype) * table.weights[:, None, None]
    if c.shape[1] == 1:
        return torch.einsum("ti,eth->eih", rows.sum(0), c.squeeze(1))
    return torch.einsum("qti,eqth->eih", rows, c)


def basis_inputs(form: Form) -> tuple[bool, bool]:
    """Whether a linear form uses the value and the gradient of its basis."""
    names = ("u", "gradu") if form.of_kind("trial") else ("v", "gradv")
    return form.uses(names[0]), form.uses(names[1])


def _to_reference(c: Tensor, inverse: Tensor, with_value: bool, with_gradient: bool) -> Tensor:
    """Axis 2 from physical inputs ``(value, d/dx)`` to reference inputs ``(value, d/dX)``."""
    if not with_gradient:
        return c
    gradient = c[:, :, int(with_value) :]
    pulled = (inverse.to(c.dtype) @ gradient.flatten(3)).unflatten(3, gradient.shape[3:])
    if not with_value:
        return pulled
    value = c[:, :, :1].expand(*pulled.shape[:2], 1, *c.shape[3:])
    return torch.cat([value, pulled], dim=2)
