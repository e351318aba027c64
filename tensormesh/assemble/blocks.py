"""Blocks of cells: how large they are, how tensors are cut, and what a form sees there."""

from dataclasses import dataclass

from torch import Tensor

from tensormesh.assemble.geometry import CellGeometry, Tabulation

# Cells are taken in blocks whose largest temporaries have about this many numbers: they stay in the
# cache of a core, and no call takes more memory than the matrix itself by much.
BLOCK_NUMBERS = 1 << 20


class Blocks:
    """Blocks of a tensor along an axis, cut all at once.

    The gradient of the tensor is then put together once, where each single cut would give one of
    full size.

    Parameters
    ----------
    whole
        The tensor.
    dim
        The axis.
    """

    def __init__(self, whole: Tensor, dim: int = 0) -> None:
        self._whole, self._dim, self._size = whole, dim, 0
        self._pieces: tuple[Tensor, ...] = ()

    def of(self, block: slice | Tensor) -> Tensor:
        """Part of the tensor: slices are of one size, but for the last, and start at multiples."""
        if isinstance(block, Tensor):
            return self._whole.index_select(self._dim, block)
        size = block.stop - block.start
        if block.start == 0 and size != self._size:
            self._size = size
            self._pieces = self._whole.split(max(size, 1), self._dim)
        return self._pieces[block.start // max(self._size, 1)]


@dataclass(frozen=True)
class CellBlock:
    """Some cells of a type, or one local facet of each, and a form's arguments at points there.

    Parameters
    ----------
    kind, cells
        Cell type, and which cells of it.
    table, geometry
        Basis of the cell at the points, and geometry of these cells; on facets with the measure of
        the facet.
    arguments, grid
        As `Assembler._arguments` gives them.
    """

    kind: str
    cells: slice | Tensor
    table: Tabulation
    geometry: CellGeometry
    arguments: dict[str, Tensor]
    grid: tuple[int, int]
