"""Between `meshio.Mesh` and the arrays of a mesh. Memory is never shared."""

import logging

import meshio
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tensormesh.element.cell_type import cell_type
from tensormesh.mesh.arrays import ByType, MeshArrays
from tensormesh.mesh.groups import is_internal, physical_groups
from tensormesh.mesh.row_keys import row_keys

logger = logging.getLogger(__name__)

Blocks = list[tuple[str, NDArray]]


def arrays_from_meshio(mesh: meshio.Mesh) -> MeshArrays:
    """Copy a `meshio.Mesh`.

    Blocks of one type are merged in order; empty ones are left out, unless there are no others.
    Coordinates that no cell needs are dropped, see `without_constant_coordinates`. Groups come from
    cell sets, from the tags ``gmsh:physical``, and from cell data ``group:<name>`` of our own VTK
    files. Cells that MSH 2.2 repeats for each of their physical groups are kept once.

    Raises
    ------
    KeyError
        If a cell type is not supported.
    ValueError, TypeError
        If cell data or cell sets do not fit the cells, or data are no numbers.
    """
    blocks = [(block.type, np.asarray(block.data)) for block in mesh.cells]
    for kind, _ in blocks:
        cell_type(kind)
    cells = {kind: index.long() for kind, index in _merged("cells", blocks, blocks).items()}
    arrays = MeshArrays(
        without_constant_coordinates(_points(mesh.points), cells),
        cells,
        {name: _as_mask_if_named(name, _tensor(name, a)) for name, a in mesh.point_data.items()},
        {name: _cell_data(name, blocks, data) for name, data in mesh.cell_data.items()},
        {name: _as_mask_if_named(name, _tensor(name, a)) for name, a in mesh.field_data.items()},
        _cell_sets(blocks, mesh.cell_sets),
    )
    if mesh.point_sets:
        logger.warning("point sets are not kept: %s", ", ".join(map(str, mesh.point_sets)))
    return _once(_only_nonempty(physical_groups(arrays)))


def arrays_to_meshio(arrays: MeshArrays) -> meshio.Mesh:
    """Copy to a `meshio.Mesh` with one block a type, in order.

    Cell data that a type lacks are NaN there, 0 or False if they are no floats.
    """
    return meshio.Mesh(
        _array(arrays.points),
        [(kind, _array(index)) for kind, index in arrays.cells.items()],
        point_data={name: _array(data) for name, data in arrays.point_data.items()},
        cell_data={
            name: [_array(_filled(by_type, kind, len(c))) for kind, c in arrays.cells.items()]
            for name, by_type in arrays.cell_data.items()
            if by_type
        },
        field_data={name: _array(data) for name, data in arrays.field_data.items()},
        cell_sets={
            name: [
                _array(by_type.get(kind, torch.empty(0, dtype=torch.int64, device="cpu")))
                for kind in arrays.cells
            ]
            for name, by_type in arrays.cell_sets.items()
        },
    )


def without_constant_coordinates(points: Tensor, cells: ByType) -> Tensor:
    """Drop last coordinates that are constant and beyond the dimension of the cells.

    A 2-D file with a column z = 0 becomes a 2-D mesh; a surface that bends keeps three coordinates.
    Points that no cell has do not matter. Constant means up to rounding.
    """
    tdim = max((cell_type(kind).dim for kind in cells), default=0)
    nodes = torch.cat([index.flatten() for index in cells.values()]) if cells else None
    if nodes is None or not len(nodes) or tdim == 0 or not _exist(nodes, points):
        return points
    lowest, highest = points[nodes].aminmax(dim=0)
    tolerance = 64 * torch.finfo(points.dtype).eps * points[nodes].abs().max()
    gdim = points.shape[1]
    while gdim > tdim and highest[gdim - 1] - lowest[gdim - 1] <= tolerance:
        gdim -= 1
    return points[:, :gdim].contiguous()


def _exist(nodes: Tensor, points: Tensor) -> bool:
    return bool(nodes.min() >= 0 and nodes.max() < len(points))


def _points(points: NDArray) -> Tensor:
    points = np.asarray(points)
    if points.dtype.kind != "f" or points.dtype.itemsize > 8:
        points = points.astype(np.float64)
    return _tensor("points", points)


def _tensor(name: str, array: NDArray) -> Tensor:
    """Copy; unsigned integers become int64 and foreign byte orders the machine's."""
    array = np.asarray(array)
    if array.dtype.kind not in "biufc":
        raise TypeError(f"{name!r} must be numbers, got dtype {array.dtype}.")
    if array.dtype.kind == "u" and array.dtype.itemsize > 1:
        array = array.astype(np.int64)
    return torch.from_numpy(np.array(array, dtype=array.dtype.newbyteorder("="), order="C"))


def _array(tensor: Tensor) -> NDArray:
    return tensor.detach().cpu().numpy().copy()


def _as_mask_if_named(name: str, data: Tensor) -> Tensor:
    return data.bool() if name.startswith("is_") or name.endswith("_mask") else data


def _merged(name: str, blocks: Blocks, data: Blocks) -> ByType:
    merged: dict[str, list[Tensor]] = {}
    for (kind, _), (_, array) in zip(blocks, data, strict=True):
        merged.setdefault(kind, []).append(_tensor(name, array))
    return {kind: torch.cat(parts) for kind, parts in merged.items()}


def _cell_data(name: str, blocks: Blocks, data: list[NDArray]) -> ByType:
    if len(data) != len(blocks):
        raise ValueError(
            f"Cell data {name!r} has {len(data)} blocks, the cells have {len(blocks)}."
        )
    merged = _merged(name, blocks, [("", np.asarray(array)) for array in data])
    return {kind: _as_mask_if_named(name, values) for kind, values in merged.items()}


def _cell_sets(blocks: Blocks, cell_sets: dict[str, list]) -> dict[str, ByType]:
    sets = {}
    for name, members in cell_sets.items():
        if is_internal(name):
            continue
        if len(members) != len(blocks):
            raise ValueError(
                f"Cell set {name!r} has {len(members)} blocks, the mesh has {len(blocks)}."
            )
        sets[name] = _cell_set(blocks, members)
    return sets


def _cell_set(blocks: Blocks, members: list) -> ByType:
    offsets: dict[str, int] = {}
    indices: dict[str, list[Tensor]] = {}
    for (kind, cells), member in zip(blocks, members, strict=True):
        offset = offsets.get(kind, 0)
        offsets[kind] = offset + len(cells)
        if member is not None and len(member):
            index = torch.from_numpy(np.array(member, dtype=np.int64))
            indices.setdefault(kind, []).append(index + offset)
    return {kind: torch.cat(parts) for kind, parts in indices.items()}


def _only_nonempty(arrays: MeshArrays) -> MeshArrays:
    kept = [kind for kind, index in arrays.cells.items() if len(index)] or list(arrays.cells)
    return MeshArrays(
        arrays.points,
        {kind: arrays.cells[kind] for kind in kept},
        arrays.point_data,
        {
            name: {kind: data for kind, data in by_type.items() if kind in kept}
            for name, by_type in arrays.cell_data.items()
        },
        arrays.field_data,
        arrays.cell_sets,
    )


def _once(arrays: MeshArrays) -> MeshArrays:
    """Keep one of cells with the same nodes, in meshes with physical tags."""
    if "gmsh:physical" not in arrays.cell_data:
        return arrays
    first = {kind: _first_of_equal(index) for kind, index in arrays.cells.items()}
    kept = {
        kind: (f == torch.arange(len(f), device=f.device)).nonzero().flatten()
        for kind, f in first.items()
    }
    n_repeated = sum(len(first[kind]) - len(kept[kind]) for kind in kept)
    if not n_repeated:
        return arrays
    logger.info("%d cells are repeated for a second physical group; each is kept once", n_repeated)
    return MeshArrays(
        arrays.points,
        {kind: index[kept[kind]] for kind, index in arrays.cells.items()},
        arrays.point_data,
        {
            name: {kind: data[kept[kind]] for kind, data in by_type.items()}
            for name, by_type in arrays.cell_data.items()
        },
        arrays.field_data,
        {
            name: {
                kind: torch.searchsorted(kept[kind], first[kind][index]).unique()
                for kind, index in by_type.items()
            }
            for name, by_type in arrays.cell_sets.items()
        },
    )


def _first_of_equal(cells: Tensor) -> Tensor:
    """(E,), for each cell the first one with the same nodes."""
    bound = int(cells.max()) + 1 if len(cells) else 1
    keys = row_keys(cells.sort(dim=1).values, bound)
    ordered, position = keys.sort(stable=True)
    first = torch.empty_like(position)
    first[position] = position[torch.searchsorted(ordered, ordered)]
    return first


def _filled(by_type: ByType, kind: str, n_cells: int) -> Tensor:
    if kind in by_type:
        return by_type[kind]
    like = next(iter(by_type.values()))
    value = float("nan") if like.is_floating_point() or like.is_complex() else 0
    return like.new_full((n_cells, *like.shape[1:]), value)
