"""A matrix of matrices: where each block goes, and what it holds."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch_sla import SparseTensor

# A matrix, a constant that fills its block, or nothing.
Entry = Any


@dataclass(frozen=True)
class BlockGrid:
    """Blocks with the sizes of their rows and columns."""

    blocks: Sequence[Sequence[Entry]]
    heights: list[int]
    widths: list[int]


def block_grid(parts: Sequence[Sequence[Entry]]) -> BlockGrid:
    """Check that blocks form a grid, and find its sizes.

    Raises
    ------
    ValueError
        If there is no block, lengths or sizes differ, or a row or column has no matrix.
    TypeError
        If a block is no matrix, number or None.
    """
    if not parts or not parts[0] or len({len(row) for row in parts}) != 1:
        raise ValueError(
            f"blocks must form a grid: rows of one length, got {[len(row) for row in parts]}"
        )
    for block in (b for row in parts for b in row):
        if not (block is None or isinstance(block, SparseTensor | int | float | complex)):
            raise TypeError(
                f"a block must be a SparseMatrix, a number or None, got {type(block).__name__}"
            )
    columns = list(zip(*parts, strict=True))
    return BlockGrid(
        parts,
        [_size(row, 0, f"block row {i}") for i, row in enumerate(parts)],
        [_size(column, 1, f"block column {j}") for j, column in enumerate(columns)],
    )


def _size(blocks: Sequence[Entry], axis: int, what: str) -> int:
    sizes = {b.shape[axis] for b in blocks if isinstance(b, SparseTensor)}
    if not sizes:
        raise ValueError(f"{what} has no matrix, so its size is unknown; give one of zeros")
    if len(sizes) > 1:
        raise ValueError(f"{what} has matrices of sizes {sorted(sizes)}: they must be equal")
    return int(sizes.pop())


def block_entries(grid: BlockGrid) -> tuple[Tensor, Tensor, Tensor, tuple[int, int]]:
    """Values, rows, columns and shape of the whole, block by block."""
    matrices = [b for row in grid.blocks for b in row if isinstance(b, SparseTensor)]
    like = matrices[0].values
    values, rows, cols = [like[:0]], [matrices[0].row_indices[:0]], [matrices[0].col_indices[:0]]
    for i, line in enumerate(grid.blocks):
        for j, block in enumerate(line):
            if block is None:
                continue
            top, left = sum(grid.heights[:i]), sum(grid.widths[:j])
            value, row, col = _entries(block, grid.heights[i], grid.widths[j], like)
            values.append(value)
            rows.append(row + top)
            cols.append(col + left)
    shape = (sum(grid.heights), sum(grid.widths))
    return torch.cat(values), torch.cat(rows), torch.cat(cols), shape


def _entries(block: Entry, m: int, n: int, like: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    if isinstance(block, SparseTensor):
        return block.values, block.row_indices, block.col_indices
    index = torch.arange(m * n, device=like.device)
    # Python numbers have no dtype of their own: real ones take that of the first matrix.
    dtype = (
        torch.promote_types(like.dtype, like.dtype.to_complex())
        if isinstance(block, complex)
        else like.dtype
    )
    return torch.full((m * n,), block, dtype=dtype, device=like.device), index // n, index % n
