"""Write MSH 4.1 (binary) and MSH 2.2: groups become physical groups.

An MSH 4.1 cell has its groups through the entity that it belongs to, so each set of groups that
occurs becomes an entity. In MSH 2.2 a cell has one group: a cell in several is written for each.

Source: the MSH file format in the reference manual of gmsh.
"""

from pathlib import Path

import meshio
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tensormesh.element.cell_type import cell_type
from tensormesh.mesh.arrays import MeshArrays
from tensormesh.mesh.convert import arrays_to_meshio
from tensormesh.mesh.gmsh_order import TYPE_NUMBERS, file_to_gmsh
from tensormesh.mesh.groups import group_tags

_TAG_DATA = ("gmsh:physical", "gmsh:geometrical", "gmsh:dim_tags")
"""Data that describe the file's own structure, which is made anew."""

Part = tuple[str, Tensor, tuple[int, ...]]
"""Cell type, indices of cells, tags of the groups that they are in."""


def msh22_mesh(arrays: MeshArrays, left_in_gmsh_order: tuple[str, ...]) -> meshio.Mesh:
    """Give meshio what it needs to write MSH 2.2.

    Parameters
    ----------
    arrays
        Contents of the mesh.
    left_in_gmsh_order
        Cell types whose nodes meshio does not reorder.

    Raises
    ------
    ValueError
        If a group has cells of several dimensions: MSH 2.2 through meshio names only one of them.
    """
    tags = group_tags(arrays)
    names = [name for _, name in tags]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(
                f"Group {name!r} has cells of several dimensions; use file_format='gmsh' (MSH 4.1)."
            )
    rows = {kind: _rows_with_tags(arrays, kind, tags) for kind in arrays.cells}
    mesh = arrays_to_meshio(_without_tag_data(arrays))
    for block in mesh.cells:
        block.data = block.data[rows[block.type][0].numpy()]
        if block.type in left_in_gmsh_order:
            block.data = block.data[:, file_to_gmsh(block.type)]
    mesh.cell_data = {
        name: [
            _components(d[rows[b.type][0].numpy()]) for b, d in zip(mesh.cells, data, strict=True)
        ]
        for name, data in mesh.cell_data.items()
    }
    physical = [rows[block.type][1].numpy() for block in mesh.cells]
    mesh.cell_data |= {"gmsh:physical": physical, "gmsh:geometrical": physical}
    mesh.point_data = {name: _components(data) for name, data in mesh.point_data.items()}
    mesh.field_data = {
        name: np.array([tag, dim]) for (dim, name), tag in tags.items() if name != str(tag)
    }
    mesh.cell_sets = {}
    return mesh


def write_msh41(arrays: MeshArrays, path: Path) -> None:
    """Write `arrays` as binary MSH 4.1. Cells of one type come ordered by their groups.

    Data are written as float64, the only type that the format has.
    """
    tags = group_tags(arrays)
    parts = [part for kind in arrays.cells for part in _parts(arrays, kind, tags)]
    entities = _entities(parts)
    with path.open("wb") as file:
        file.write(b"$MeshFormat\n4.1 1 8\n" + np.int32(1).tobytes() + b"\n$EndMeshFormat\n")
        file.write(_section("PhysicalNames", _physical_names(tags)))
        file.write(_section("Entities", _entities_body(entities)))
        file.write(_section("Nodes", _nodes_body(arrays.points, max(entities, default=(0, 1)))))
        file.write(_section("Elements", _elements_body(arrays, parts, entities)))
        for name, data in arrays.point_data.items():
            if name not in _TAG_DATA:
                file.write(_section("NodeData", _data_body(name, _components(_numpy(data)))))
        for name, data in arrays_to_meshio(_without_tag_data(arrays)).cell_data.items():
            blocks = dict(zip(arrays.cells, data, strict=True))
            ordered = [blocks[kind][index.cpu().numpy()] for kind, index, _ in parts]
            values = _components(np.concatenate(ordered))
            file.write(_section("ElementData", _data_body(name, values)))


def _without_tag_data(arrays: MeshArrays) -> MeshArrays:
    return MeshArrays(
        arrays.points,
        arrays.cells,
        {name: data for name, data in arrays.point_data.items() if name not in _TAG_DATA},
        {name: of for name, of in arrays.cell_data.items() if name not in _TAG_DATA},
    )


def _membership(
    arrays: MeshArrays, kind: str, tags: dict[tuple[int, str], int]
) -> tuple[list[int], Tensor]:
    """Tags of the groups that `kind` occurs in, and (E, that many) bool."""
    dim = cell_type(kind).dim
    names = [name for name, of in arrays.cell_sets.items() if len(of.get(kind, ()))]
    member = torch.zeros(len(arrays.cells[kind]), len(names), dtype=torch.bool)
    for column, name in enumerate(names):
        member[arrays.cell_sets[name][kind].cpu(), column] = True
    return [tags[dim, name] for name in names], member


def _rows_with_tags(
    arrays: MeshArrays, kind: str, tags: dict[tuple[int, str], int]
) -> tuple[Tensor, Tensor]:
    """Rows of `kind` to write, each cell once a group, and the tag of each, 0 for none."""
    numbers, member = _membership(arrays, kind, tags)
    row, column = torch.cat([member, ~member.any(dim=1, keepdim=True)], dim=1).nonzero().unbind(1)
    return row, torch.tensor([*numbers, 0])[column]


def _parts(arrays: MeshArrays, kind: str, tags: dict[tuple[int, str], int]) -> list[Part]:
    numbers, member = _membership(arrays, kind, tags)
    if not numbers:
        return [(kind, torch.arange(len(member)), ())]
    sets, which = torch.unique(member, dim=0, return_inverse=True)
    return [
        (
            kind,
            (which == i).nonzero().flatten(),
            tuple(n for n, is_in in zip(numbers, one, strict=True) if is_in),
        )
        for i, one in enumerate(sets.tolist())
    ]


def _entities(parts: list[Part]) -> dict[tuple[int, int], tuple[int, ...]]:
    """(dimension, tag): groups. One entity a dimension and set of groups."""
    entities: dict[tuple[int, int], tuple[int, ...]] = {}
    for kind, _, groups in parts:
        dim = cell_type(kind).dim
        of_dim = [of for (d, _), of in entities.items() if d == dim]
        if groups not in of_dim:
            entities[dim, len(of_dim) + 1] = groups
    return entities


def _section(name: str, body: bytes) -> bytes:
    return b"".join([f"${name}\n".encode(), body, f"\n$End{name}\n".encode()])


def _sizes(*numbers: int) -> bytes:
    return np.array(numbers, dtype=np.uint64).tobytes()


def _ints(*numbers: int) -> bytes:
    return np.array(numbers, dtype=np.int32).tobytes()


def _physical_names(tags: dict[tuple[int, str], int]) -> bytes:
    lines = [f'{dim} {tag} "{name}"' for (dim, name), tag in tags.items() if name != str(tag)]
    return "\n".join([str(len(lines)), *lines]).encode()


def _entities_body(entities: dict[tuple[int, int], tuple[int, ...]]) -> bytes:
    body = [_sizes(*(sum(d == dim for d, _ in entities) for dim in range(4)))]
    for (dim, tag), groups in sorted(entities.items()):
        # gmsh reads the bounding box, and does without a true one.
        body += [_ints(tag), np.zeros(3 if dim == 0 else 6).tobytes()]
        body += [_sizes(len(groups)), _ints(*groups), _sizes(0) if dim else b""]
    return b"".join(body)


def _nodes_body(points: Tensor, entity: tuple[int, int]) -> bytes:
    n = len(points)
    padded = np.zeros((n, 3))
    padded[:, : points.shape[1]] = _numpy(points)
    head = _sizes(1, n, 1, n) + _ints(*entity, 0) + _sizes(n)
    return head + np.arange(1, n + 1, dtype=np.uint64).tobytes() + padded.tobytes()


def _elements_body(
    arrays: MeshArrays, parts: list[Part], entities: dict[tuple[int, int], tuple[int, ...]]
) -> bytes:
    n_cells = sum(len(index) for _, index, _ in parts)
    tag_of = {(dim, groups): tag for (dim, tag), groups in entities.items()}
    body, first = [_sizes(len(parts), n_cells, 1, n_cells)], 1
    for kind, index, groups in parts:
        dim, n = cell_type(kind).dim, len(index)
        cells = arrays.cells[kind].cpu()[index][:, file_to_gmsh(kind)].numpy() + 1
        body += [_ints(dim, tag_of[dim, groups], TYPE_NUMBERS[kind]), _sizes(n)]
        rows = np.column_stack([np.arange(first, first + n), cells])
        body.append(rows.astype(np.uint64).tobytes())
        first += n
    return b"".join(body)


def _data_body(name: str, values: NDArray) -> bytes:
    n, width = values.shape
    head = f'1\n"{name}"\n1\n0.0\n3\n0\n{width}\n{n}\n'.encode()
    table = np.empty(n, np.dtype([("tag", "i4"), ("values", "f8", (width,))]))
    table["tag"], table["values"] = np.arange(1, n + 1), values
    return head + table.tobytes()


def _components(values: NDArray) -> NDArray:
    """(n, 1, 3 or 9): gmsh knows scalars, vectors and tensors, so zeros fill up; or (n, more)."""
    values = values.reshape(len(values), -1).astype(np.float64)
    width = next((w for w in (1, 3, 9) if w >= values.shape[1]), values.shape[1])
    return np.pad(values, ((0, 0), (0, width - values.shape[1])))


def _numpy(tensor: Tensor) -> NDArray:
    return tensor.detach().cpu().numpy()
