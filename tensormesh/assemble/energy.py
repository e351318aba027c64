"""The integral of a density over the cells, its internal force and its tangent."""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tensormesh.assemble.blocks import CellBlock
from tensormesh.assemble.contract import element_matrices, element_vectors
from tensormesh.assemble.form import Form, FormData
from tensormesh.assemble.integrand import point_tensors, point_values
from tensormesh.assemble.linearize import (
    MakeCoefficients,
    PointCoefficients,
    Unknown,
    coefficients,
    derivatives,
    linearized,
    residual,
    tested,
    variation,
)
from tensormesh.assemble.per_point import PerQuadraturePoint
from tensormesh.assemble.sampling import cells_last
from tensormesh.assemble.scatter import scatter

if TYPE_CHECKING:
    from tensormesh.assemble.base import Assembler


def cell_blocks(
    assembler: "Assembler", form: Form, data: FormData, numbers_per_point: int = 1
) -> Iterator[CellBlock]:
    """All cells block by block: at least one block a cell type, be it empty."""
    for kind, cells in assembler.elements.items():
        table, geometry = assembler._table(kind), assembler._cell_geometry(kind)
        n = cells.shape[0]
        n_points = len(table.weights)
        size = data.cells_a_block(n_points, n_points * numbers_per_point)
        for start in range(0, max(n, 1), size):
            block = slice(start, min(start + size, n))
            local = geometry.of(block)
            arguments, grid = assembler._arguments(form, data, kind, block, local, table)
            linear = table.is_affine and table.mapping is None
            if linear and _same_in_a_cell(form, data, kind):
                arguments, grid = _first_point(arguments, grid)
            yield CellBlock(kind, block, table, local, arguments, grid)


def _same_in_a_cell(form: Form, data: FormData, kind: str) -> bool:
    """Whether the arguments do not vary inside an affine cell of a linear basis."""
    per_point = (
        isinstance(data.element_data[a.key][kind], PerQuadraturePoint) for a in form.of_kind("cell")
    )
    return not form.of_kind("x", "field") and not any(per_point)


def _first_point(
    arguments: dict[str, Tensor], grid: tuple[int, int]
) -> tuple[dict[str, Tensor], tuple[int, int]]:
    first = {
        name: x if name.endswith("=") else x[: grid[1]]  # points lead
        for name, x in arguments.items()
    }
    return first, (1, grid[1])


def integral(assembler: "Assembler", form: Form, data: FormData) -> Tensor:
    """Integral of `form`, a number at each point, over the cells of `assembler`: 0-d.

    Raises
    ------
    FormError
        If the form returns no number.
    """
    parts = []
    for block in cell_blocks(assembler, form, data):
        density = point_values(form, block.arguments).unflatten(0, block.grid)
        parts.append((density * block.geometry.measure * block.table.weights[:, None]).sum())
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def sampled(assembler: "Assembler", form: Form, data: FormData) -> dict[str, PerQuadraturePoint]:
    """Values ``[E, Q, ...]`` of `form`, of any shape, at the points of each cell type."""
    pieces: dict[str, list[Tensor]] = {kind: [] for kind in assembler.elements}
    for block in cell_blocks(assembler, form, data):
        values = point_tensors(form, block.arguments).unflatten(0, block.grid).transpose(0, 1)
        n_cells, n_points = block.geometry.measure.shape[1], len(block.table.weights)
        pieces[block.kind].append(values.expand(n_cells, n_points, *values.shape[2:]))
    return {kind: PerQuadraturePoint(torch.cat(piece)) for kind, piece in pieces.items()}


def force_of_energy(assembler: "Assembler", form: Form, data: FormData, name: str | None) -> Tensor:
    """Derivative of the integral of a density by the nodal values of a field: ``[n, H]``."""
    unknown = Unknown(form, data, name)
    shape = tested(linearized(form, unknown, energy=True))
    make = partial(variation, form, unknown)

    def vectors(block: CellBlock) -> Tensor:
        c = coefficients(make, unknown, block.arguments)
        return element_vectors(shape, cells_last(shape, c, block.grid), block.geometry, block.table)

    columns = assembler._topology.columns
    width = unknown.shape.numel() * (assembler.dimension + 1)
    blocks = cell_blocks(assembler, form, data, width)
    pieces = ((columns[block.kind][:, block.cells], vectors(block)) for block in blocks)
    return scatter(assembler.n_points, pieces).t()


def tangent_of_energy(
    assembler: "Assembler", form: Form, data: FormData, name: str | None
) -> Tensor:
    """Second derivative of the integral of a density: ``[H * H, nnz]`` on the node pairs."""
    unknown = Unknown(form, data, name)
    shape = linearized(form, unknown, energy=True)
    return _tangent(assembler, form, data, unknown, shape, partial(variation, form, unknown))


def tangent_of_residual(
    assembler: "Assembler", form: Form, data: FormData, name: str | None
) -> Tensor:
    """Derivative of a linear form on cells by a field: ``[H * H, nnz]`` on the node pairs."""
    unknown = Unknown(form, data, name)

    def make(names: list[str]) -> PointCoefficients:
        return residual(form, unknown, names, assembler.points)

    return _tangent(assembler, form, data, unknown, linearized(form, unknown), make)


def _tangent(
    assembler: "Assembler",
    form: Form,
    data: FormData,
    unknown: Unknown,
    shape: Form,
    make: MakeCoefficients,
) -> Tensor:
    def matrices(block: CellBlock) -> Tensor:
        c = derivatives(make, unknown, block.arguments)
        c = cells_last(shape, c, block.grid)
        return element_matrices(shape, c, block.geometry, block.table)

    slots = assembler._topology.slots
    width = (unknown.shape.numel() * (assembler.dimension + 1)) ** 2
    blocks = cell_blocks(assembler, form, data, width)
    pieces = ((slots[block.kind][:, block.cells], matrices(block)) for block in blocks)
    return scatter(assembler._topology.n_slots, pieces)
