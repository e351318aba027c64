"""Mesh files, through meshio; its printing and exiting become exceptions here."""

import contextlib
import io
import logging
from collections.abc import Iterator
from os import PathLike
from pathlib import Path

import meshio
import numpy as np
import torch

from tensormesh.element.cell_type import NAMES
from tensormesh.mesh.arrays import MeshArrays
from tensormesh.mesh.convert import arrays_to_meshio
from tensormesh.mesh.gmsh_order import gmsh_to_file
from tensormesh.mesh.groups import groups_as_cell_data
from tensormesh.mesh.msh41 import is_msh41, physical_names, read_msh41
from tensormesh.mesh.msh_write import msh22_mesh, write_msh41
from tensormesh.mesh.vtk_lagrange import from_lagrange_types, to_lagrange_types

logger = logging.getLogger(__name__)

_HIGH_ORDER = tuple(kind for kind, (_, order) in NAMES.items() if order > 2)
# meshio knows the node order of the other second-order types.
_LEFT_IN_GMSH_ORDER = ("wedge18", "pyramid14", *_HIGH_ORDER)
_LAGRANGE_FORMATS = ("vtk", "vtk42", "vtk51", "vtu")
_VTK_FORMATS = (*_LAGRANGE_FORMATS, "xdmf")


def read_meshio(file_name: str | PathLike[str], file_format: str | None = None) -> meshio.Mesh:
    """Read a file.

    Parameters
    ----------
    file_name
        Path of the file.
    file_format
        meshio's name of the format, None to tell by the first line (gmsh) or the suffix.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If it cannot be read in that format.
    """
    path = Path(file_name)
    if not path.exists():
        raise FileNotFoundError(f"There is no mesh file {str(path)!r}.")
    with _as_value_error(f"Cannot read mesh file {str(path)!r}"):
        if file_format in (None, "gmsh") and is_msh41(path):
            return read_msh41(path)
        file_format = file_format or _sniffed(path)
        mesh = _read_by_meshio(path, file_format)
        file_format = file_format or path.suffix.lower().removeprefix(".")
        if file_format == "gmsh":
            _reorder_for_meshio(mesh)
            _add_named_groups(mesh, physical_names(path))
        elif file_format in _LAGRANGE_FORMATS:
            from_lagrange_types(mesh, file_format)
        else:
            _refuse_high_order([block.type for block in mesh.cells], file_format)
        return mesh


def write_meshio(
    arrays: MeshArrays, file_name: str | PathLike[str], file_format: str | None = None
) -> None:
    """Write a file.

    VTK formats: points are padded to three coordinates, bools written as integers, groups as cell
    data ``group:<name>`` of 0 and 1, from which a mesh that is read makes groups again.
    MSH 4.1 (``"gmsh"``, the default for .msh) and 2.2 (``"gmsh22"``): groups as physical groups,
    data as float64 with 1, 3 or 9 components, and cells of one type may be read back in another
    order.

    Parameters
    ----------
    arrays
        The contents.
    file_name
        Path of the file.
    file_format
        meshio's name of the format, None to tell by the suffix.

    Raises
    ------
    ValueError
        If the format is unknown or cannot hold the mesh.
    """
    path = Path(file_name)
    file_format = file_format or _format_of(path)
    _refuse_complex(arrays)
    if file_format == "gmsh":
        write_msh41(arrays, path)
        return
    mesh = _for_format(arrays, file_format)
    with _as_value_error(f"Cannot write mesh file {str(path)!r}"):
        meshio.write(path, mesh, file_format)


def _refuse_complex(arrays: MeshArrays) -> None:
    of_cells = {name: data for name, of in arrays.cell_data.items() for data in of.values()}
    for name, data in {**arrays.point_data, **arrays.field_data, **of_cells}.items():
        if data.is_complex():
            raise ValueError(
                f"Data {name!r} are complex, mesh files are real; store real and imaginary part."
            )


def _refuse_high_order(kinds: list[str], file_format: str) -> None:
    for kind in kinds:
        if kind in _HIGH_ORDER:
            raise ValueError(
                f"The node order of {kind!r} in files of format {file_format!r} is not known; use"
                " .vtu, .vtk or .msh."
            )


def _reorder_for_meshio(mesh: meshio.Mesh) -> None:
    """Reorder the cells of a gmsh file that meshio leaves as they are in the file."""
    for block in mesh.cells:
        if block.type in _LEFT_IN_GMSH_ORDER:
            block.data = block.data[:, gmsh_to_file(block.type)]


def _add_named_groups(mesh: meshio.Mesh, names: dict[tuple[int, int], str]) -> None:
    """Make cell sets of tags: by ``field_data`` one name in two dimensions would be ambiguous."""
    tags = mesh.cell_data.get("gmsh:physical", [np.zeros(len(block)) for block in mesh.cells])
    for (dim, tag), name in names.items():
        members = mesh.cell_sets.setdefault(name, [np.empty(0, np.int64) for _ in mesh.cells])
        for i, block in enumerate(mesh.cells):
            if block.dim == dim:
                members[i] = np.flatnonzero(tags[i] == tag)


def _read_by_meshio(path: Path, file_format: str | None) -> meshio.Mesh:
    try:
        return meshio.read(path, file_format)
    except ValueError as error:
        if file_format == "gmsh" and b"$ElementData" in path.read_bytes():
            # meshio 5.3.5 splits such data at the wrong cells, and then finds that they do not fit.
            raise ValueError(
                "meshio reads $ElementData of MSH 2.2 only if there is one block of cells; save the"
                " mesh as MSH 4.1"
            ) from error
        raise


def _sniffed(path: Path) -> str | None:
    """``"gmsh"`` by the first line: the suffix .msh is also that of another format."""
    with path.open("rb") as file:
        return "gmsh" if file.readline().startswith((b"$MeshFormat", b"$Comments")) else None


def _format_of(path: Path) -> str:
    if path.suffix.lower() == ".msh":
        return "gmsh"
    formats = meshio.extension_to_filetypes.get(path.suffix.lower())
    if not formats:
        raise ValueError(
            f"No mesh format has the suffix of {str(path)!r}; name one with file_format=, or use "
            f"one of {', '.join(sorted(meshio.extension_to_filetypes))}."
        )
    return formats[0]


def _for_format(arrays: MeshArrays, file_format: str) -> meshio.Mesh:
    if file_format == "gmsh22":
        return msh22_mesh(arrays, _LEFT_IN_GMSH_ORDER)
    mesh = arrays_to_meshio(_for_vtk(arrays) if file_format in _VTK_FORMATS else arrays)
    if file_format in _LAGRANGE_FORMATS:
        to_lagrange_types(mesh, file_format)
    else:
        _refuse_high_order(list(arrays.cells), file_format)
    return mesh


def _for_vtk(arrays: MeshArrays) -> MeshArrays:
    pad = arrays.points.new_zeros(len(arrays.points), 3 - arrays.points.shape[1])
    arrays = groups_as_cell_data(arrays)
    return MeshArrays(
        torch.cat([arrays.points, pad], dim=1),
        arrays.cells,
        {name: _bool_as_int(data) for name, data in arrays.point_data.items()},
        {
            name: {kind: _bool_as_int(data) for kind, data in by_type.items()}
            for name, by_type in arrays.cell_data.items()
        },
        {name: _bool_as_int(data) for name, data in arrays.field_data.items()},
    )


def _bool_as_int(data: torch.Tensor) -> torch.Tensor:
    return data.to(torch.int8) if data.dtype == torch.bool else data


@contextlib.contextmanager
def _as_value_error(what: str) -> Iterator[None]:
    """Turn whatever meshio raises, prints or exits with into a `ValueError` that starts `what`."""
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            yield
    except OSError:
        raise
    except (Exception, SystemExit) as error:
        said = " ".join(f"{error} {printed.getvalue()}".split())
        raise ValueError(f"{what}: {type(error).__name__} {said}") from error
    if printed.getvalue().strip():
        logger.info("%s: meshio says %s", what, printed.getvalue().strip())
