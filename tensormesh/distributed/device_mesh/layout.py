"""Index arithmetic of a device mesh: which rank sits where. Plain integers, no communication."""

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from typing import Any

Span = tuple[int, ...]  # the root dimensions that one axis of a (sub-)mesh runs over, slowest first


class Layout:
    """Row-major arrangement of distinct global ranks.

    Parameters
    ----------
    ranks
        Global ranks, ``prod(sizes)`` of them, last dimension fastest.
    sizes
        Number of ranks along each dimension, all positive.

    Raises
    ------
    ValueError
        If there is no dimension, a size is not a positive integer, a rank is negative, not an
        integer or repeated, or the number of ranks is not the product of the sizes.
    """

    def __init__(self, ranks: Iterable[int], sizes: Iterable[int]) -> None:
        self.ranks = tuple(ranks)
        self.sizes = check_sizes("sizes", sizes)
        for rank in self.ranks:
            if type(rank) is not int or rank < 0:
                raise ValueError(f"mesh holds {rank!r}: global ranks are integers >= 0")
        if len(set(self.ranks)) != len(self.ranks):
            repeated = sorted({rank for rank in self.ranks if self.ranks.count(rank) > 1})
            raise ValueError(f"mesh holds the ranks {repeated} more than once; each may come once")
        if len(self.ranks) != math.prod(self.sizes):
            raise ValueError(
                f"the rank map has {len(self.ranks)} ranks, but the sizes {self.sizes} ask for "
                f"{math.prod(self.sizes)}"
            )

    def __eq__(self, other: object) -> bool:
        """Tell whether the same ranks sit at the same places."""
        if not isinstance(other, Layout):
            return NotImplemented
        return (self.ranks, self.sizes) == (other.ranks, other.sizes)

    def __hash__(self) -> int:
        """Hash of ranks and sizes."""
        return hash((self.ranks, self.sizes))

    def coordinate(self, rank: int) -> tuple[int, ...] | None:
        """Position of a global rank, None if it is not part of the layout."""
        if rank not in self.ranks:
            return None
        position, index = [], self.ranks.index(rank)
        for size in reversed(self.sizes):
            index, remainder = divmod(index, size)
            position.append(remainder)
        return tuple(reversed(position))

    def lines(self, span: Span) -> list[tuple[int, ...]]:
        """All sets of ranks that differ only along the dimensions of `span`.

        Lines come in row-major order of the other dimensions, the ranks of a line in row-major
        order of `span`, whose first dimension is the slowest.
        """
        others = [dim for dim in range(len(self.sizes)) if dim not in span]
        return [
            tuple(self.ranks[start + step] for step in self._offsets(span))
            for start in self._offsets(others)
        ]

    def through(self, rank: int, spans: Sequence[Span]) -> "Layout":
        """Sub-layout with one axis a span, through `rank`, or the first one if it has no place."""
        joint = tuple(dim for span in spans for dim in span)
        lines = self.lines(joint)
        line = next((line for line in lines if rank in line), lines[0])
        return Layout(line, [math.prod(self.sizes[dim] for dim in span) for span in spans])

    def _offsets(self, dims: Sequence[int]) -> Iterator[int]:
        """Flat offsets of all positions along `dims`, the first of them slowest."""
        strides = [math.prod(self.sizes[dim + 1 :]) for dim in dims]
        for position in product(*(range(self.sizes[dim]) for dim in dims)):
            yield sum(i * stride for i, stride in zip(position, strides, strict=True))


def check_sizes(argument: str, sizes: object) -> tuple[int, ...]:
    """Return `sizes` as a tuple of positive integers, one or more, or raise ``ValueError``."""
    if isinstance(sizes, str) or not isinstance(sizes, Iterable):
        raise ValueError(f"{argument} is {sizes!r}: expected a tuple with one size per dimension")
    sizes = tuple(sizes)
    if not sizes:
        raise ValueError(f"{argument} is empty: a device mesh has at least one dimension")
    for size in sizes:
        if type(size) is not int or size <= 0:
            raise ValueError(f"{argument} = {sizes} holds {size!r}: expected integers >= 1")
    return sizes


def nested_layout(mesh: object) -> Layout:
    """Layout of an int, a nested list or tuple, or an integer array or tensor of global ranks.

    Raises
    ------
    ValueError
        If the nesting is ragged, an entry is no global rank, or a dimension is empty.
    """
    nested = mesh.tolist() if hasattr(mesh, "tolist") else mesh
    sizes: list[int] = []
    level: list[Any] = list(nested) if isinstance(nested, list | tuple) else [nested]
    while True:
        sizes.append(len(level))
        if not level:
            raise ValueError(f"mesh has a dimension of size 0, its shape begins with {sizes}")
        if not any(isinstance(entry, list | tuple) for entry in level):
            break
        level = _unnest(level)
    return Layout(level, _per_level(sizes))


def _unnest(level: list[Any]) -> list[Any]:
    """Entries one level down; all must be sequences of one length."""
    lengths = {len(entry) if isinstance(entry, list | tuple) else None for entry in level}
    if len(lengths) > 1:
        raise ValueError(f"mesh is ragged: {level!r} mixes lengths; nest lists of equal length")
    return [entry for inner in level for entry in inner]


def _per_level(counts: Sequence[int]) -> list[int]:
    """Sizes from the number of entries at each nesting level, outermost first."""
    return [count // above for above, count in zip([1, *counts], counts, strict=False)]
