"""The integral of a density over the cells."""

from typing import TYPE_CHECKING

from torch import Tensor

from tensormesh.assemble.form import Form, FormData
from tensormesh.assemble.integrand import point_values

if TYPE_CHECKING:
    from tensormesh.assemble.base import Assembler

# Points whose densities are computed at once, where no derivative is asked for.
_BLOCK_POINTS = 1 << 16


def integral(assembler: "Assembler", form: Form, data: FormData) -> Tensor:
    """Integral of `form`, a number at each point, over the cells of `assembler`: 0-d.

    Raises
    ------
    FormError
        If the form returns no number.
    """
    parts = []
    for kind, cells in assembler.elements.items():
        table, geometry = assembler._table(kind), assembler._cell_geometry(kind)
        n, size = cells.shape[0], max(1, _BLOCK_POINTS // len(table.weights))
        for start in range(0, max(n, 1), size):
            block = slice(start, min(start + size, n))
            local = geometry.of(block)
            arguments, grid = assembler._arguments(form, data, kind, block, local, table)
            density = point_values(form, arguments).unflatten(0, grid)
            parts.append((density * local.measure * table.weights[:, None]).sum())
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total
