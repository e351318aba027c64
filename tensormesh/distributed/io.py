"""Results for ParaView: a VTU a part, and one PVTU over them."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import numpy as np
import torch
from torch import Tensor

from tensormesh.distributed.collectives import agree
from tensormesh.distributed.forms import refuse_different
from tensormesh.mesh.mesh import Mesh

if TYPE_CHECKING:
    from tensormesh.distributed.mesh import DistributedMesh
    from tensormesh.distributed.part import Part

_VTK_TYPES = {
    np.dtype("float32"): "Float32",
    np.dtype("float64"): "Float64",
    np.dtype("bool"): "Int8",  # as the pieces have it
    np.dtype("uint8"): "UInt8",
    np.dtype("int8"): "Int8",
    np.dtype("int16"): "Int16",
    np.dtype("int32"): "Int32",
    np.dtype("int64"): "Int64",
}


def write_pvtu(
    dmesh: "DistributedMesh", path: str | Path, point_data: Mapping[str, Tensor] | None = None
) -> Path:
    """Write the mesh and nodal fields. **Collective**: each process writes its own parts.

    Parameters
    ----------
    dmesh
        The mesh.
    path
        The ``.pvtu`` file; the pieces ``<name>_<part>.vtu`` stand beside it. Missing folders are
        made.
    point_data
        Name -> owned slice ``[n_owned * h]`` or ``[n_owned, ...]``, real. Vectors of two components
        get a third, zero, which ParaView wants.

    Returns
    -------
    Path
        The ``.pvtu`` file.

    Raises
    ------
    TypeError
        On every rank, if a field is no tensor.
    ValueError
        On every rank, if the suffix is not ``.pvtu``, a length does not fit, or the ranks give
        different paths or fields.
    OSError
        On every rank, if a file cannot be written.
    """
    target, data = Path(path), point_data or {}
    with agree(dmesh.device_mesh):
        for name, x in data.items():
            if not isinstance(x, Tensor):
                raise TypeError(f"point_data[{name!r}] must be a tensor, got {type(x).__name__}")
        if target.suffix != ".pvtu":
            raise ValueError(f"path = {str(path)!r} must end in .pvtu")
        target.parent.mkdir(parents=True, exist_ok=True)
    given = [f"point_data[{name!r}] ({x.dtype})" for name, x in data.items()]
    refuse_different([f"path = {str(path)!r}", *given], dmesh.device_mesh)
    fields = {name: dmesh.part_values(x.detach()) for name, x in data.items()}
    with agree(dmesh.device_mesh):
        for i, part in enumerate(dmesh.parts):
            here = {name: _as_vtk(values[i]) for name, values in fields.items()}
            _piece(part, here).save(str(_piece_path(target, part.number)))
        if dmesh.device_mesh.get_local_rank() == 0:
            first = {name: _as_vtk(values[0]) for name, values in fields.items()}
            _write_index(target, dmesh, first)
    return target


def _piece_path(target: Path, number: int) -> Path:
    return target.with_name(f"{target.stem}_{number}.vtu")


def _as_vtk(values: Tensor) -> Tensor:
    values = values.cpu().flatten(1) if values.dim() > 2 else values.cpu()
    if values.dim() == 2 and values.shape[1] == 2:
        values = torch.cat([values, values.new_zeros(values.shape[0], 1)], dim=1)
    return values


def _piece(part: "Part", point_data: dict[str, Tensor]) -> Mesh:
    cells = {kind: cell.cpu() for kind, cell in part.mesh.top_cells().items()}
    number = {
        kind: torch.full((len(cell),), part.number, device="cpu") for kind, cell in cells.items()
    }
    points = part.mesh.points.detach().cpu()
    return Mesh.from_arrays(points, cells, point_data, {"part": number})


def _write_index(target: Path, dmesh: "DistributedMesh", point_data: dict[str, Tensor]) -> None:
    file = ElementTree.Element(
        "VTKFile", type="PUnstructuredGrid", version="0.1", byte_order="LittleEndian"
    )
    grid = ElementTree.SubElement(file, "PUnstructuredGrid", GhostLevel="0")
    points = ElementTree.SubElement(grid, "PPoints")
    _declare(points, "Points", dmesh.parts[0].mesh.points.detach().cpu().numpy().dtype, 3)
    data = ElementTree.SubElement(grid, "PPointData")
    for name, values in point_data.items():
        _declare(data, name, values.numpy().dtype, values.shape[1] if values.dim() > 1 else 1)
    _declare(ElementTree.SubElement(grid, "PCellData"), "part", np.dtype("int64"), 1)
    for number in range(dmesh.num_partitions):
        ElementTree.SubElement(grid, "Piece", Source=_piece_path(target, number).name)
    ElementTree.indent(file)
    ElementTree.ElementTree(file).write(target, xml_declaration=True, encoding="utf-8")


def _declare(parent: ElementTree.Element, name: str, dtype: np.dtype, n_components: int) -> None:
    ElementTree.SubElement(
        parent,
        "PDataArray",
        type=_VTK_TYPES[dtype],
        Name=name,
        NumberOfComponents=str(n_components),
    )
