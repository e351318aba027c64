"""Nodal data at quadrature points, and coefficients in the order that contraction wants."""

import math

import torch
from torch import Tensor

from tensormesh.assemble.form import Form
from tensormesh.assemble.geometry import CellGeometry, Tabulation


def cells_last(form: Form, coefficients: Tensor, grid: tuple[int, int]) -> Tensor:
    """Coefficients ``[Q * E, T, (A,) ...]`` at points as ``[Q, T, (A,) k, E]``.

    The trailing sizes, the block of unknowns, become one axis ``k``.
    """
    n_inputs = 2 if form.of_kind("trial") and form.of_kind("test") else 1
    first = 1 + n_inputs
    flat = coefficients.flatten(first) if coefficients.dim() > first else coefficients.unsqueeze(-1)
    return flat.unflatten(0, grid).movedim(1, -1).contiguous()


def take(field: Tensor, index: Tensor) -> Tensor:
    """``field[index]`` along the first axis, several times as fast."""
    return field.index_select(0, index.reshape(-1)).unflatten(0, index.shape)


def interpolate(field: Tensor, columns: Tensor, table: Tabulation) -> Tensor:
    """Values ``[Q, E, ...]`` of nodal data ``[n, ...]`` at the quadrature points of cells.

    Parameters
    ----------
    field
        ``[n, ...]``.
    columns
        Nodes of the cells, ``[B, E]``.
    table
        Basis at the quadrature points.
    """
    nodal = take(field, columns)
    values = table.values.to(nodal.dtype) @ nodal.flatten(1)
    return values.reshape(len(table.weights), *nodal.shape[1:])


def gradient(field: Tensor, columns: Tensor, table: Tabulation, geometry: CellGeometry) -> Tensor:
    """Physical gradients ``[Q, E, ..., D]`` of nodal data; parameters as of `interpolate`."""
    nodal = take(field, columns)
    by_direction = table.gradients.movedim(2, 0).to(nodal.dtype) @ nodal.flatten(1)
    n_components = math.prod(field.shape[1:])
    reference = by_direction.reshape(*by_direction.shape[:2], columns.shape[1], n_components)
    inverse = geometry.inverse.to(nodal.dtype).expand(len(table.weights), -1, -1, -1)
    physical = torch.einsum("kqer,qkde->qerd", reference, inverse)
    return physical.reshape(*physical.shape[:2], *field.shape[1:], physical.shape[-1])
