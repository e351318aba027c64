"""`write_pvtu`: every cell once, fields as given, and the same errors on every rank."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import tensormesh as tm
from tensormesh.distributed.device_mesh import DeviceMesh
from tests.distributed.cases import KINDS, dmesh_of, mesh_of, outcome
from tests.pvtu import Pvtu, cells_of, read_pvtu
from tests.rank_pool import RankPool


def fields_of(x: Tensor) -> dict[str, Tensor]:
    """A scalar, a vector and a matrix at each point, all injective in the coordinates."""
    dim = x.shape[1]
    weights = torch.arange(1.0, dim + 1, dtype=x.dtype)
    return {
        "scalar": x @ weights,
        "vector": 2.0 * x + weights,
        "matrix": x[:, :, None] * x[:, None, :] + torch.outer(weights, weights),
    }


def write_fields(dmesh: tm.DistributedMesh, mesh: tm.Mesh, path: Path) -> Path:
    fields = fields_of(mesh.points)
    flat = dmesh.scatter(fields["vector"].reshape(-1))
    owned = {name: dmesh.scatter(values) for name, values in fields.items()}
    return dmesh.write(path, {**owned, "flat": flat})


def assert_holds(written: Pvtu, mesh: tm.Mesh, n_parts: int) -> None:
    assert written.cells() == cells_of(mesh)
    assert len(written.pieces) == n_parts
    for number, piece in enumerate(written.pieces):
        assert {int(p) for block in piece.cell_data["part"] for p in block} == {number}
        x = torch.from_numpy(piece.points)[:, : mesh.dim]
        expected = {name: v.flatten(1) if v.dim() > 1 else v for name, v in fields_of(x).items()}
        padding = (0, 3 - mesh.dim)  # ParaView's vectors have three components
        expected["vector"] = torch.nn.functional.pad(expected["vector"], padding)
        expected["flat"] = expected["vector"]
        assert piece.point_data.keys() == expected.keys()
        for name, values in expected.items():
            assert np.array_equal(piece.point_data[name], values.numpy()), name


def write_all_kinds(device_mesh: DeviceMesh, folder: Path) -> list[Path]:
    written = []
    for kind in KINDS:
        mesh = mesh_of(kind)
        written.append(write_fields(dmesh_of(mesh, device_mesh), mesh, folder / f"{kind}.pvtu"))
    return written


@pytest.mark.parametrize("n", [1, 2, 3])
def test_ranks_write_every_cell_once_and_the_fields(
    ranks: RankPool, n: int, tmp_path: Path
) -> None:
    """features | distributed.io.write_pvtu: distributed."""
    for written in ranks(n, write_all_kinds, tmp_path):
        assert written == [tmp_path / f"{kind}.pvtu" for kind in KINDS]
    for kind in KINDS:
        assert_holds(read_pvtu(tmp_path / f"{kind}.pvtu"), mesh_of(kind), n)


@pytest.mark.parametrize("n_parts", [1, 3])
def test_one_process_writes_all_its_parts(n_parts: int, tmp_path: Path) -> None:
    """features | distributed.io.write_pvtu: serial."""
    for kind in KINDS:
        mesh = mesh_of(kind)
        path = write_fields(tm.DistributedMesh(mesh, n_parts), mesh, tmp_path / f"{kind}.pvtu")
        assert_holds(read_pvtu(path), mesh, n_parts)


def test_declared_arrays_have_the_types_of_the_data(tmp_path: Path) -> None:
    mesh = mesh_of("mixed").to(torch.float32)
    dmesh = tm.DistributedMesh(mesh, 2)
    data = {
        "single": torch.ones(mesh.n_points),
        "double": torch.ones(mesh.n_points, 3, dtype=torch.float64),
        "whole": torch.arange(mesh.n_points),
    }
    written = read_pvtu(dmesh.write(tmp_path / "types.pvtu", data))
    assert written.point_arrays == {
        "single": ("Float32", 1),
        "double": ("Float64", 3),
        "whole": ("Int64", 1),
    }
    assert written.cell_arrays == {"part": ("Int64", 1)}
    assert {piece.points.dtype for piece in written.pieces} == {np.dtype("float32")}
    assert written.cells() == cells_of(mesh)


def test_masks_and_short_integers_are_written_as_what_they_are(tmp_path: Path) -> None:
    mesh = mesh_of("mixed")
    on = mesh.boundary_mask
    data = {"mask": on, "short": on.int(), "byte": on.to(torch.uint8)}
    written = read_pvtu(tm.DistributedMesh(mesh, 2).write(tmp_path / "whole.pvtu", data))
    assert written.point_arrays == {
        "mask": ("Int8", 1),
        "short": ("Int32", 1),
        "byte": ("UInt8", 1),
    }
    for name in data:
        assert sum(written.nodal(name).values()) == int(on.sum())


def test_mesh_without_fields_and_folders_that_do_not_exist_yet(tmp_path: Path) -> None:
    mesh = mesh_of("tri")
    path = tm.DistributedMesh(mesh, 2).write(tmp_path / "new" / "newer" / "mesh.pvtu")
    written = read_pvtu(path)
    assert written.point_arrays == {}
    assert written.cells() == cells_of(mesh)


def test_differentiable_fields_and_points_are_written(tmp_path: Path) -> None:
    mesh = mesh_of("tri")
    mesh.points.requires_grad_()
    u = torch.ones(mesh.n_points, dtype=mesh.dtype, requires_grad=True)
    written = read_pvtu(tm.DistributedMesh(mesh, 2).write(tmp_path / "u.pvtu", {"u": 3 * u}))
    assert written.cells() == cells_of(mesh)
    assert {float(value) for value in written.nodal("u").values()} == {3.0}


ROW_OF_THREE = (0, 2, 1)  # labels of three squares in a row: the middle one owns no node


def write_where_a_rank_owns_nothing(device_mesh: DeviceMesh, path: Path) -> int:
    mesh = tm.Mesh.gen_rectangle(n=(3, 1), element_type="quad")
    dmesh = dmesh_of(mesh, device_mesh, ROW_OF_THREE)
    write_fields(dmesh, mesh, path)
    return dmesh.index_map.n_owned


def test_a_rank_that_owns_nothing_writes_its_cells(ranks: RankPool, tmp_path: Path) -> None:
    path = tmp_path / "row.pvtu"
    assert ranks(3, write_where_a_rank_owns_nothing, path) == [4, 4, 0]
    assert_holds(read_pvtu(path), tm.Mesh.gen_rectangle(n=(3, 1), element_type="quad"), 3)


def failures(device_mesh: DeviceMesh, folder: Path) -> dict[str, Any]:
    mesh = mesh_of("tri")
    dmesh = dmesh_of(mesh, device_mesh)
    rank, n_owned = device_mesh.get_local_rank(), dmesh.index_map.n_owned
    (folder / "file").touch()
    on_one = torch.ones(n_owned + 1 if rank == 1 else n_owned)
    waves = torch.ones(n_owned, dtype=torch.complex128)
    u = torch.ones(n_owned)
    return {
        "suffix": outcome(dmesh.write, folder / "mesh.vtu"),
        "suffix on one rank": outcome(dmesh.write, folder / f"m.{'vtu' if rank == 1 else 'pvtu'}"),
        "length on one rank": outcome(dmesh.write, folder / "a.pvtu", {"u": on_one}),
        "complex": outcome(dmesh.write, folder / "b.pvtu", {"u": waves}),
        "folder is a file": outcome(dmesh.write, folder / "file" / "mesh.pvtu"),
        "list on one rank": outcome(dmesh.write, folder / "c.pvtu", {"u": [1] if rank == 1 else u}),
        "fields": outcome(dmesh.write, folder / "d.pvtu", None if rank == 1 else {"u": u}),
        "names": outcome(dmesh.write, folder / "e.pvtu", {"w" if rank == 1 else "u": u}),
        "dtypes": outcome(dmesh.write, folder / "f.pvtu", {"u": u.double() if rank == 1 else u}),
        "paths": outcome(dmesh.write, folder / f"{rank}.pvtu", {"u": u}),
    }


def test_every_rank_raises_what_is_wrong_on_one(ranks: RankPool, tmp_path: Path) -> None:
    found = ranks(3, failures, tmp_path)
    for what, (name, text) in {
        "suffix": ("ValueError", "must end in .pvtu"),
        "suffix on one rank": ("ValueError", "must end in .pvtu"),
        "length on one rank": ("ValueError", "owned slice"),
        "complex": ("ValueError", "complex"),
        "folder is a file": ("FileExistsError", "file"),
        "list on one rank": ("TypeError", "point_data['u'] must be a tensor, got list"),
        "fields": ("ValueError", "different data"),
        "names": ("ValueError", "different data"),
        "dtypes": ("ValueError", "different data"),
        "paths": ("ValueError", "different data"),
    }.items():
        for rank, by_what in enumerate(found):
            raised = by_what[what]
            assert raised is not None, (what, rank)
            assert raised[0] == name, (what, rank, raised)
            assert text in raised[1], (what, rank, raised)
