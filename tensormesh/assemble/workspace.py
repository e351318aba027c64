"""`Workspace`: what assemblers keep between calls, because it depends on the mesh alone."""

from collections.abc import Callable

import torch
from torch import Tensor

from tensormesh.assemble.blocks import BLOCK_NUMBERS, Blocks
from tensormesh.assemble.form import Form
from tensormesh.assemble.geometry import CellGeometry, Tabulation, cell_geometry, tabulation
from tensormesh.assemble.sampling import take
from tensormesh.assemble.separable import Separable
from tensormesh.assemble.short_cut import pulled_back
from tensormesh.assemble.topology import Topology
from tensormesh.element.cell_type import cell_type
from tensormesh.element.quadrature import quadrature

_KEPT_NUMBERS_PER_CELL = 256
_ALL = slice(None)


class Workspace:
    """Tabulations, geometry, and constants pulled back, each computed when first needed.

    Parameters
    ----------
    quadrature_order
        Least degree of exactness; raised to twice the order of the cells where that is more.
    geometry_order
        As of `Topology`.
    """

    def __init__(self, quadrature_order: int, geometry_order: int | None) -> None:
        self._order, self._geometry_order = quadrature_order, geometry_order
        self._tables: dict[str, Tabulation] = {}
        self._geometry: dict[str, tuple[Tensor, int, CellGeometry | None]] = {}
        self._pulled: dict[tuple[str, tuple[bool, ...]], tuple[CellGeometry, Tensor, Tensor]] = {}

    def degree(self, kind: str) -> int:
        """Degree of exactness on cells of type `kind`."""
        return max(self._order, 2 * cell_type(kind).order)

    def table(self, kind: str, like: Tensor) -> Tabulation:
        """Basis of cell type `kind` at its quadrature points, in the dtype and device of `like`."""
        known = self._tables.get(kind)
        if known is None or (known.values.dtype, known.values.device) != (like.dtype, like.device):
            rule = quadrature(kind, self.degree(kind))
            known = tabulation(kind, *rule, like, self._geometry_order)
            self._tables[kind] = known
        return known

    def geometry(self, topology: Topology, kind: str) -> "BlockGeometry":
        """Geometry of the cells of a type, block by block.

        It is kept from the second call with the same coordinates on: a mesh that moves in each
        call would not use it again. Coordinates that require grad are differentiated in each call.
        """
        points, table = topology.points, self.table(kind, topology.points)
        if points.requires_grad or points.is_inference():
            return BlockGeometry(topology, kind, table, None)
        known = self._geometry.get(kind)
        if known is None or known[0] is not points or known[1] != points._version:
            self._geometry[kind] = (points, points._version, None)
            return BlockGeometry(topology, kind, table, None)
        kept = known[2] or _blockwise(topology, kind, table)
        self._geometry[kind] = (points, points._version, kept)
        return BlockGeometry(topology, kind, table, kept)

    def pulled_back(
        self, form: Form, kind: str, separable: Separable, geometry: "BlockGeometry"
    ) -> Tensor | None:
        """Coefficients ``P`` on the reference cells, as of `pulled_back`, where they are kept.

        They depend on the mesh alone, and are kept where the geometry is, if they are small.
        """
        constant = separable.constant
        known_geometry = self._geometry.get(kind)
        kept = geometry.kept
        if known_geometry is None or kept is None or known_geometry[2] is not kept:
            return None
        if kept.measure.shape[0] * constant.numel() > _KEPT_NUMBERS_PER_CELL:
            return None
        key = kind, tuple(form.uses(name) for name in ("v", "gradv", "u", "gradu"))
        known = self._pulled.get(key)
        if known is None or known[0] is not kept or not _equal(known[1], constant):
            known = (kept, constant, _pulled_blockwise(form, separable, kept))
            self._pulled[key] = known
        return known[2]


class BlockGeometry:
    """Geometry of the cells of one type, whole if it is kept, else computed for each block.

    Parameters
    ----------
    topology, kind
        Points and cells, and the cell type.
    table
        Its basis at the quadrature points.
    kept
        The geometry of all cells, if there is one.
    """

    def __init__(
        self, topology: Topology, kind: str, table: Tabulation, kept: CellGeometry | None
    ) -> None:
        self._topology, self._kind, self._table, self.kept = topology, kind, table, kept
        # Gathered once where points are differentiated, which so get their gradient in one piece.
        differentiated = kept is None and topology.points.requires_grad
        self._corners = Blocks(corners(topology, kind), 2) if differentiated else None

    def of(self, cells: slice | Tensor) -> CellGeometry:
        """Geometry of some cells.

        Raises
        ------
        ValueError
            As of `cell_geometry`.
        """
        if self.kept is not None:
            return CellGeometry(self.kept.measure[..., cells], self.kept.inverse[..., cells])
        if self._corners is not None:
            at = self._corners.of(cells)
        else:
            at = corners(self._topology, self._kind, cells)
        return cell_geometry(self._kind, at, self._table, cells)


def _blockwise(topology: Topology, kind: str, table: Tabulation) -> CellGeometry:
    blocks = BlockGeometry(topology, kind, table, None)

    def part(block: slice) -> list[Tensor]:
        geometry = blocks.of(block)
        return [geometry.measure, geometry.inverse]

    n_numbers = 2 * table.of_map.gradients.numel()
    return CellGeometry(*_joined(topology.cells[kind].shape[0], n_numbers, part))


def _pulled_blockwise(form: Form, separable: Separable, whole: CellGeometry) -> Tensor:
    def part(block: slice) -> list[Tensor]:
        geometry = CellGeometry(whole.measure[:, block], whole.inverse[..., block])
        return [pulled_back(form, separable, geometry)]

    n_numbers = 2 * whole.inverse.shape[:-1].numel() * separable.tensor.shape[2]
    return _joined(whole.measure.shape[1], n_numbers, part)[0]


def _joined(n: int, n_numbers: int, part: Callable[[slice], list[Tensor]]) -> list[Tensor]:
    """Tensors of `n` cells, the last axis, from those of blocks with `n_numbers` a cell."""
    size = max(1, BLOCK_NUMBERS // n_numbers)
    whole: list[Tensor] = []
    for start in range(0, max(n, 1), size):
        block = slice(start, min(start + size, n))
        parts = part(block)
        whole = whole or [x.new_empty(*x.shape[:-1], n) for x in parts]
        for of_all, of_block in zip(whole, parts, strict=True):
            of_all[..., block] = of_block
    return whole


def corners(topology: Topology, kind: str, cells: Tensor | slice = _ALL) -> Tensor:
    """Coordinates ``[D, B, E]`` of the nodes that make the geometry of cells of a type."""
    columns = topology.map_columns(kind)[:, cells]
    return torch.stack([take(x, columns) for x in topology.points.unbind(1)])


def _equal(a: Tensor, b: Tensor) -> bool:
    return a.dtype == b.dtype and torch.equal(a, b)
