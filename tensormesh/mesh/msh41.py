"""MSH 4.1, the format of gmsh: a reader that keeps all that a mesh needs.

meshio refuses files in which only some entities are in a physical group ("save all"), and forgets
one of two groups with one name in different dimensions. Here each entity carries all of its groups.

Source: "MSH file format version 4.1" in the reference manual of gmsh.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path

import meshio
import numpy as np
from numpy.typing import NDArray

from tensormesh.element.cell_type import cell_type
from tensormesh.mesh.gmsh_order import gmsh_to_file, type_name
from tensormesh.mesh.msh_stream import AsciiStream, BinaryStream, Stream

Entity = tuple[int, int]
"""(dimension, tag)."""


@dataclass
class _Contents:
    """What has been read so far, in the terms of the file."""

    names: dict[Entity, str] = field(default_factory=dict)
    groups: dict[Entity, list[int]] = field(default_factory=dict)
    node_tags: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    points: NDArray[np.float64] = field(default_factory=lambda: np.empty((0, 3)))
    node_entities: NDArray[np.int64] = field(default_factory=lambda: np.empty((0, 2), np.int64))
    blocks: list[tuple[Entity, str, NDArray[np.int64]]] = field(default_factory=list)
    cell_tags: list[NDArray[np.int64]] = field(default_factory=list)
    point_data: dict[str, tuple[NDArray, NDArray]] = field(default_factory=dict)
    cell_data: dict[str, tuple[NDArray, NDArray]] = field(default_factory=dict)


def is_msh41(path: Path) -> bool:
    """Whether the first lines of a file say MSH 4.1."""
    with path.open("rb") as file:
        return re.match(rb"\$MeshFormat\s+4\.1\s", file.read(64)) is not None


def read_msh41(path: Path) -> meshio.Mesh:
    """Read a file for which `is_msh41` is true.

    Returns
    -------
    meshio.Mesh
        Cells in meshio's node order, one block an entity; physical groups in ``cell_sets``, named
        by their number if they have no name; ``gmsh:physical`` (first group, 0 for none),
        ``gmsh:geometrical`` and ``gmsh:dim_tags`` as meshio gives them.

    Raises
    ------
    ValueError
        If the file is damaged or partitioned, or has a cell type that is not supported.
    """
    contents = _Contents()
    sections = _sections(path.read_bytes())
    ascii_mode, size_width = _mesh_format(sections)
    for name, body in sections:
        if name == "PartitionedEntities":
            raise ValueError("The file is partitioned by gmsh; save it unpartitioned.")
        if name in _READERS:
            stream = AsciiStream(body) if ascii_mode else BinaryStream(body, size_width)
            _READERS[name](stream, contents)
        elif name == "PhysicalNames":
            contents.names.update(_physical_names(body))
        elif name in ("NodeData", "ElementData"):
            data = contents.point_data if name == "NodeData" else contents.cell_data
            data.update([_data(body, ascii_mode)])
    return _meshio_mesh(contents)


def _sections(raw: bytes) -> list[tuple[str, bytes]]:
    sections, position = [], 0
    first_line = re.compile(rb"^\$(\w+)[ \t]*\r?\n", re.M)
    while (start := first_line.search(raw, position)) is not None:
        name = start[1]
        stop = raw.find(b"$End" + name, start.end())
        if stop < 0:
            raise ValueError(f"Section ${name.decode()} has no end: the file is cut short.")
        sections.append((name.decode(), raw[start.end() : stop]))
        position = stop + len(name) + 4
    return sections


def physical_names(path: Path) -> dict[Entity, str]:
    """(dimension, tag): name, of a file of any version of the format."""
    section = re.search(
        rb"^\$PhysicalNames\s(.*?)^\$EndPhysicalNames", path.read_bytes(), re.M | re.S
    )
    return _physical_names(section[1]) if section else {}


def _mesh_format(sections: list[tuple[str, bytes]]) -> tuple[bool, int]:
    body = dict(sections)["MeshFormat"]
    _, mode, width = body.split(b"\n")[0].split()[:3]
    if mode == b"1" and body[body.index(b"\n") + 1 :][:4] != np.int32(1).tobytes():
        raise ValueError("The file is binary in the byte order of another machine.")
    return mode == b"0", int(width)


def _physical_names(body: bytes) -> dict[Entity, str]:
    found = re.findall(r'^\s*(\d+)\s+(\d+)\s+"(.*)"\s*$', body.decode(), re.M)
    return {(int(dim), int(tag)): name for dim, tag, name in found}


def _entities(stream: Stream, contents: _Contents) -> None:
    for dim, count in enumerate(stream.sizes(4)):
        for _ in range(count):
            (tag,) = stream.ints(1)
            stream.floats(3 if dim == 0 else 6)
            # A negative number says that the entity has the opposite orientation in the group.
            groups = np.abs(stream.ints(stream.sizes(1)[0]))
            contents.groups[dim, int(tag)] = groups.tolist()
            if dim > 0:
                stream.ints(stream.sizes(1)[0])


def _nodes(stream: Stream, contents: _Contents) -> None:
    n_blocks = stream.sizes(4)[0]
    tags, points, entities = [], [], []
    for _ in range(n_blocks):
        dim, tag, parametric = stream.ints(3)
        (count,) = stream.sizes(1)
        tags.append(stream.sizes(count))
        width = 3 + (dim if parametric else 0)
        points.append(stream.floats(count * width).reshape(count, width)[:, :3])
        entities.append(np.tile([dim, tag], (count, 1)))
    contents.node_tags = np.concatenate(tags or [contents.node_tags])
    contents.points = np.concatenate(points or [contents.points])
    contents.node_entities = np.concatenate(entities or [contents.node_entities])


def _elements(stream: Stream, contents: _Contents) -> None:
    n_blocks = stream.sizes(4)[0]
    for _ in range(n_blocks):
        dim, tag, number = stream.ints(3).tolist()
        kind = type_name(number)
        width = 1 + cell_type(kind).n_nodes
        (count,) = stream.sizes(1)
        rows = stream.sizes(count * width).reshape(count, width)
        contents.blocks.append(((dim, tag), kind, rows[:, 1:]))
        contents.cell_tags.append(rows[:, 0])


_READERS = {"Entities": _entities, "Nodes": _nodes, "Elements": _elements}


def _data(body: bytes, ascii_mode: bool) -> tuple[str, tuple[NDArray, NDArray]]:
    """Name, tags (k,) and values (k, components) of a section NodeData or ElementData."""
    head, tags = _data_head(body)
    stop = len(b"\n".join(body.split(b"\n")[:head])) + 1
    (_, n_components, n_rows), name = tags[1][:3], tags[0]
    if ascii_mode:
        numbers = AsciiStream(body[stop:]).floats(n_rows * (1 + n_components))
        numbers = numbers.reshape(n_rows, 1 + n_components)
        return name, (numbers[:, 0].astype(np.int64), numbers[:, 1:])
    row = np.dtype([("tag", "i4"), ("values", "f8", (n_components,))])
    table = np.frombuffer(body[stop:], row, n_rows)
    return name, (table["tag"].astype(np.int64), table["values"])


def _data_head(body: bytes) -> tuple[int, tuple[str, list[int]]]:
    """Number of lines of the head, and its first string and its integers."""
    lines = body.split(b"\n")
    n_strings = int(lines[0])
    n_reals = int(lines[1 + n_strings])
    at = 2 + n_strings + n_reals
    n_ints = int(lines[at])
    integers = [int(line) for line in lines[at + 1 : at + 1 + n_ints]]
    return at + 1 + n_ints, (lines[1].decode().strip().strip('"'), integers)


def _meshio_mesh(contents: _Contents) -> meshio.Mesh:
    blocks = [
        (kind, _positions(contents.node_tags, nodes, "point")[:, gmsh_to_file(kind)])
        for _, kind, nodes in contents.blocks
    ]
    sizes = [len(cells) for _, cells in blocks]
    groups = [contents.groups.get(entity, []) for entity, _, _ in contents.blocks]
    tags = {
        "gmsh:physical": [g[0] if g else 0 for g in groups],
        "gmsh:geometrical": [tag for (_, tag), _, _ in contents.blocks],
    }
    if not any(groups):
        del tags["gmsh:physical"]
    return meshio.Mesh(
        contents.points,
        blocks,
        point_data={
            "gmsh:dim_tags": contents.node_entities,
            **{n: _point_values(contents, *d) for n, d in contents.point_data.items()},
        },
        cell_data={
            **{
                name: [np.full(n, tag) for n, tag in zip(sizes, of_block, strict=True)]
                for name, of_block in tags.items()
            },
            **{n: _cell_values(contents, *d) for n, d in contents.cell_data.items()},
        },
        field_data={name: np.array([tag, dim]) for (dim, tag), name in contents.names.items()},
        cell_sets=_cell_sets(contents, groups, sizes),
    )


def _positions(known: NDArray, wanted: NDArray, what: str) -> NDArray[np.int64]:
    """Where in `known` each of `wanted` is, of the same shape."""
    if not wanted.size:
        return np.zeros(wanted.shape, np.int64)
    place = np.full(max(known.max(initial=0), wanted.max()) + 1, -1)
    place[known] = np.arange(len(known))
    found = place[wanted]
    if (found < 0).any():
        raise ValueError(f"The file names {what} {wanted[found < 0][0]}, which it does not have.")
    return found


def _cell_sets(
    contents: _Contents, groups: list[list[int]], sizes: list[int]
) -> dict[str, list[NDArray]]:
    sets = {name: [np.empty(0, np.int64) for _ in sizes] for name in contents.names.values()}
    for block, ((dim, _), _, _) in enumerate(contents.blocks):
        for tag in groups[block]:
            name = contents.names.get((dim, tag), str(tag))
            members = sets.setdefault(name, [np.empty(0, np.int64) for _ in sizes])
            members[block] = np.arange(sizes[block])
    return sets


def _point_values(contents: _Contents, tags: NDArray, values: NDArray) -> NDArray:
    full = np.full((len(contents.points), values.shape[1]), np.nan)
    full[_positions(contents.node_tags, tags, "point")] = values
    return full[:, 0] if full.shape[1] == 1 else full


def _cell_values(contents: _Contents, tags: NDArray, values: NDArray) -> list[NDArray]:
    known = np.concatenate(contents.cell_tags)
    full = np.full((len(known), values.shape[1]), np.nan)
    full[_positions(known, tags, "cell")] = values
    full = full[:, 0] if full.shape[1] == 1 else full
    return np.split(full, np.cumsum([len(t) for t in contents.cell_tags])[:-1])
