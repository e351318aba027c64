"""A grid of equal boxes, each cut alike into cells: connectivity, sides and masks by index."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tensormesh.element.cell_type import cell_name
from tensormesh.element.facet import local_facets
from tensormesh.element.reference import SHAPES, file_order_nodes
from tensormesh.mesh.mesh import Mesh


@dataclass(frozen=True)
class Grid:
    """Boxes of equal size, ``n`` along each axis, with ``order + 1`` nodes along each edge.

    Nodes and boxes are numbered with the first axis fastest.

    Attributes
    ----------
    bounds
        Low and high bound along each axis.
    n
        Boxes along each axis.
    order
        Order of the cells.
    """

    bounds: tuple[tuple[float, float], ...]
    n: tuple[int, ...]
    order: int

    @property
    def dim(self) -> int:
        """Number of axes."""
        return len(self.n)

    @property
    def shape(self) -> tuple[int, ...]:
        """Nodes along each axis."""
        return tuple(self.order * n + 1 for n in self.n)

    @property
    def strides(self) -> NDArray[np.int64]:
        """Difference of the numbers of neighbouring nodes, for each axis."""
        return np.cumprod((1, *self.shape[:-1]))

    def coordinates(self) -> NDArray[np.float64]:
        """Nodes, (n_nodes, dim)."""
        axes = [np.linspace(*b, m) for b, m in zip(self.bounds, self.shape, strict=True)]
        return _product(axes)

    def places(self) -> NDArray[np.int64]:
        """Steps of each node from the low corner, (n_nodes, dim)."""
        return _product([np.arange(m) for m in self.shape])

    def boxes(self) -> NDArray[np.int64]:
        """Low corner of each box, in boxes, (n_boxes, dim)."""
        return _product([np.arange(m) for m in self.n])


@dataclass(frozen=True)
class Block:
    """Cells of one shape.

    Attributes
    ----------
    shape
        A key of `SHAPES`.
    vertices
        Corners of the unit box, (m, V, dim): it is cut into m cells with V vertices.
    boxes
        Low corner of each box that is cut so, in boxes, (k, dim).
    """

    shape: str
    vertices: NDArray[np.int64]
    boxes: NDArray[np.int64]


def grid_mesh(grid: Grid, blocks: list[Block], sides: tuple[str, ...]) -> Mesh:
    """Mesh of the blocks and of the facets on the boundary, with groups and masks of the sides.

    Parameters
    ----------
    grid
        The boxes.
    blocks
        Cells of the boxes; each box is in one block, and neighbours are cut alike where they meet.
    sides
        Names of the low and the high side of each axis.
    """
    cells = {cell_name(b.shape, grid.order): block_cells(grid, b) for b in blocks}
    facets, groups = _boundary_cells(grid, blocks, sides)
    connectivity = {kind: torch.from_numpy(conn) for kind, conn in (cells | facets).items()}
    points = torch.from_numpy(grid.coordinates())
    return Mesh.from_arrays(points, connectivity, _masks(grid, sides), cell_sets=groups)


def block_cells(grid: Grid, block: Block) -> NDArray[np.int64]:
    """Connectivity of the cells of `block`, (k m, B), box by box."""
    return _cells(grid, block, _offsets(grid, block))


def _offsets(grid: Grid, block: Block) -> NDArray[np.int64]:
    """Nodes of the cells of one box as steps from its low corner, (m, B, dim).

    Cells are affine images of their reference cell, of which some vertices span the axes.
    """
    reference = SHAPES[block.shape]
    axes = [reference.vertices.index(tuple(axis)) for axis in np.eye(reference.dim).tolist()]
    origin = block.vertices[:, :1]
    edges = block.vertices[:, axes] - origin
    nodes = file_order_nodes(reference, grid.order)
    return np.rint(grid.order * (origin + nodes @ edges)).astype(np.int64)


def _cells(grid: Grid, block: Block, offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """Connectivity of the cells with node `offsets` (m, B, dim) in each box, (k m, B)."""
    corners = grid.order * block.boxes @ grid.strides
    local = offsets @ grid.strides
    return (corners[:, None, None] + local).reshape(-1, local.shape[1])


def _boundary_cells(
    grid: Grid, blocks: list[Block], sides: tuple[str, ...]
) -> tuple[dict[str, NDArray[np.int64]], dict[str, dict[str, Tensor]]]:
    """Facets on the boundary by type, and the group of each side: {side: {type: indices}}."""
    rows: dict[str, list[NDArray[np.int64]]] = {}
    places: dict[str, dict[str, list[Tensor]]] = {side: {} for side in sides}
    for number, side in enumerate(sides):
        axis, high = divmod(number, 2)
        for block in blocks:
            outermost = block.boxes[:, axis] == high * (grid.n[axis] - 1)
            outer = Block(block.shape, block.vertices, block.boxes[outermost])
            for kind, offsets in _facets_on_side(grid, block, axis, high).items():
                start = sum(len(found) for found in rows.setdefault(kind, []))
                rows[kind].append(_cells(grid, outer, offsets))
                place = torch.arange(start, start + len(rows[kind][-1]), device="cpu")
                places[side].setdefault(kind, []).append(place)
    groups = {
        side: {kind: torch.cat(parts) for kind, parts in by_type.items()}
        for side, by_type in places.items()
    }
    return {kind: np.concatenate(found) for kind, found in rows.items()}, groups


def _facets_on_side(grid: Grid, block: Block, axis: int, high: int) -> dict[str, NDArray[np.int64]]:
    """Facets of the cells of one box that lie on one of its sides, {type: offsets (m, B, dim)}."""
    offsets = _offsets(grid, block)
    found: dict[str, list[NDArray[np.int64]]] = {}
    for facet in local_facets(cell_name(block.shape, grid.order)):
        nodes = offsets[:, list(facet.nodes)]
        on_side = (nodes[:, :, axis] == high * grid.order).all(axis=1)
        if on_side.any():
            found.setdefault(facet.cell_name, []).append(nodes[on_side])
    return {kind: np.concatenate(nodes) for kind, nodes in found.items()}


def _masks(grid: Grid, sides: tuple[str, ...]) -> dict[str, Tensor]:
    places = grid.places()
    last = np.array(grid.shape) - 1
    on_side = np.stack([places == 0, places == last], axis=2).reshape(len(places), -1)
    masks = {"is_boundary": torch.from_numpy(on_side.any(axis=1))}
    for number, side in enumerate(sides):
        masks[f"is_{side}_boundary"] = torch.from_numpy(on_side[:, number].copy())
    return masks


def _product(axes: list[NDArray]) -> NDArray:
    """All combinations of the entries of the axes, the first fastest, (n, dim)."""
    grids = np.meshgrid(*reversed(axes), indexing="ij")
    return np.stack([grid.ravel() for grid in reversed(grids)], axis=1)
