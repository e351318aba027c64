"""Existing process groups as the lines of a layout."""

from collections.abc import Sequence

import torch
import torch.distributed as dist

from tensormesh.distributed.device_mesh.layout import Layout, nested_layout


def layout_of_groups(groups: Sequence[dist.ProcessGroup], mesh: object) -> Layout:
    """Layout whose lines through this rank are `groups`, one a dimension.

    `mesh` may be None for a single group, whose own order counts then.

    Raises
    ------
    TypeError
        If an entry is no process group.
    ValueError
        If there is none, `mesh` is missing or of another number of dimensions, or a group is not
        the line of `mesh` through this rank.
    """
    if not groups:
        raise ValueError("group is empty: give one process group or more")
    for group in groups:
        if not isinstance(group, dist.ProcessGroup):
            raise TypeError(
                f"group holds a {type(group).__name__}: expected process groups that this rank "
                "belongs to"
            )
    if mesh is None and len(groups) > 1:
        raise ValueError(f"mesh is missing: {len(groups)} groups need it for their order")
    layout = nested_layout(dist.get_process_group_ranks(groups[0]) if mesh is None else mesh)
    if len(layout.sizes) != len(groups):
        raise ValueError(
            f"mesh has {len(layout.sizes)} dimensions, but there are {len(groups)} groups"
        )
    for dim, group in enumerate(groups):
        _check_line(layout, dim, group)
    return layout


def device_type_of(group: dist.ProcessGroup) -> str:
    """Device type that a group's backend works on, ``"cuda"`` before others where there is one."""
    types = {device.type for device in group._device_types}
    return "cuda" if "cuda" in types and torch.cuda.is_available() else min(types)


def _check_line(layout: Layout, dim: int, group: dist.ProcessGroup) -> None:
    """Raise ``ValueError`` unless the group is this rank's line of the layout."""
    ranks = tuple(dist.get_process_group_ranks(group))
    line = next((line for line in layout.lines((dim,)) if dist.get_rank() in line), None)
    if line != ranks:
        raise ValueError(
            f"mesh disagrees with group {dim}: this rank's line along dimension {dim} is {line}, "
            f"the group holds {ranks}"
        )
