"""Named groups of cells: physical groups of gmsh, and how VTK files carry them."""

from collections.abc import Iterator

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
    Groups that are there already stay as they are, and a tag without a name, all cells of which are
    in one of them, adds none: its name is known there.
    """
    sets = {name: dict(by_type) for name, by_type in arrays.cell_sets.items()}
    cell_data = {}
    for name, by_type in arrays.cell_data.items():
        if name.startswith(GROUP_PREFIX):
            flagged = {k: flag.nonzero().flatten() for k, flag in by_type.items() if flag.any()}
            sets[name.removeprefix(GROUP_PREFIX)] = flagged
        else:
            cell_data[name] = by_type
    for name, named, kind, index in _tagged(arrays):
        if named or not _covered(index, kind, sets):
            sets.setdefault(name, {}).setdefault(kind, index)
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


def group_tags(arrays: MeshArrays) -> dict[tuple[int, str], int]:
    """Number the groups for a file of gmsh: (dimension, name): tag.

    The tag that `field_data` names is kept, and so is a name that is a number.
    """
    keys = sorted(
        {
            (cell_type(kind).dim, name)
            for name, by_type in arrays.cell_sets.items()
            for kind, index in by_type.items()
            if len(index)
        }
    )
    named = _named(arrays.field_data)
    tags = {}
    for dim, name in keys:
        if name in named and named[name][1] == dim:
            tags[dim, name] = named[name][0]
        elif name.isdecimal() and int(name) > 0:
            tags[dim, name] = int(name)
    free = max(tags.values(), default=0) + 1
    for number, key in enumerate((key for key in keys if key not in tags), free):
        tags[key] = number
    return tags


def _tagged(arrays: MeshArrays) -> Iterator[tuple[str, bool, str, Tensor]]:
    """Name of each tag, whether it has one besides its number, cell type, indices."""
    names = {key: name for name, key in _named(arrays.field_data).items()}
    for kind, tags in arrays.cell_data.get(PHYSICAL, {}).items():
        for tag in tags.unique().tolist():
            key = (tag, cell_type(kind).dim)
            if tag != 0:
                index = (tags == tag).nonzero().flatten()
                yield names.get(key, str(tag)), key in names, kind, index


def _named(field_data: dict[str, Tensor]) -> dict[str, tuple[int, int]]:
    """Name: (tag, dimension), of gmsh's entries among `field_data`."""
    return {
        name: (int(data[0]), int(data[1]))
        for name, data in field_data.items()
        if data.shape == (2,) and not data.is_floating_point()
    }


def _covered(index: Tensor, kind: str, sets: dict[str, ByType]) -> bool:
    return any(kind in of and bool(torch.isin(index, of[kind]).all()) for of in sets.values())


def _flags(n_cells: int, index: Tensor | None, like: Tensor) -> Tensor:
    flags = torch.zeros(n_cells, dtype=torch.int8, device=like.device)
    if index is not None:
        flags[index] = 1
    return flags
