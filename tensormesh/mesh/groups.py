"""Named groups of cells: physical groups of gmsh, and how VTK files carry them."""

import torch
from torch import Tensor

from tensormesh.element.cell_type import cell_type
from tensormesh.mesh.arrays import ByType, MeshArrays

GROUP_PREFIX = "group:"
"""A VTK file has no groups: there, group ``inlet`` is cell data ``group:inlet``, 0 or 1."""

PHYSICAL = "gmsh:physical"


def is_internal(name: str) -> bool:
    """Tell names of a reader's own sets, such as ``gmsh:bounding_entities``, from groups."""
    return name.startswith("gmsh:")


def physical_groups(arrays: MeshArrays) -> MeshArrays:
    """Make groups of physical tags and of cell data ``group:<name>``, and drop the latter.

    A tag is named by `field_data` (name: tag, dimension), else by its number; tag 0 is none.
    Groups that are there already stay as they are.
    """
    sets = {name: dict(by_type) for name, by_type in arrays.cell_sets.items()}
    for name, by_type in _tagged(arrays).items():
        for kind, index in by_type.items():
            sets.setdefault(name, {}).setdefault(kind, index)
    cell_data = {}
    for name, by_type in arrays.cell_data.items():
        if name.startswith(GROUP_PREFIX):
            flagged = {k: flag.nonzero().flatten() for k, flag in by_type.items() if flag.any()}
            sets[name.removeprefix(GROUP_PREFIX)] = flagged
        else:
            cell_data[name] = by_type
    return MeshArrays(
        arrays.points, arrays.cells, arrays.point_data, cell_data, arrays.field_data, sets
    )


def groups_as_cell_data(arrays: MeshArrays) -> MeshArrays:
    """Turn every group into cell data ``group:<name>``, int8, 1 for its cells."""
    flags = {
        GROUP_PREFIX + name: {
            kind: _flags(len(cells), by_type.get(kind), cells)
            for kind, cells in arrays.cells.items()
        }
        for name, by_type in arrays.cell_sets.items()
    }
    return MeshArrays(
        arrays.points,
        arrays.cells,
        arrays.point_data,
        {**arrays.cell_data, **flags},
        arrays.field_data,
    )


def _tagged(arrays: MeshArrays) -> dict[str, ByType]:
    names = {
        (int(data[0]), int(data[1])): name
        for name, data in arrays.field_data.items()
        if data.numel() == 2 and not data.is_floating_point()
    }
    groups: dict[str, ByType] = {}
    for kind, tags in arrays.cell_data.get(PHYSICAL, {}).items():
        for tag in tags.unique().tolist():
            name = names.get((tag, cell_type(kind).dim), str(tag))
            if tag != 0:
                groups.setdefault(name, {})[kind] = (tags == tag).nonzero().flatten()
    return groups


def _flags(n_cells: int, index: Tensor | None, like: Tensor) -> Tensor:
    flags = torch.zeros(n_cells, dtype=torch.int8, device=like.device)
    if index is not None:
        flags[index] = 1
    return flags
