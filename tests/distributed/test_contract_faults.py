"""Faults seen elsewhere, on two and three ranks, that no other file shows."""

from typing import Any

import pytest
import torch
from torch import Tensor

import tensormesh as tm
from tensormesh.distributed import distributed
from tensormesh.distributed.device_mesh import DeviceMesh
from tests.distributed.cases import (
    Reaction,
    VectorLoad,
    dmesh_of,
    labelled,
    mesh_of,
    outcome,
    two_fields,
)
from tests.rank_pool import RankPool

SIZES = [2, 3]


def vector_forms(device_mesh: DeviceMesh) -> dict[str, Any]:
    mesh = mesh_of("mixed")
    dmesh = dmesh_of(mesh, device_mesh)
    call, rank = two_fields(mesh), device_mesh.get_local_rank()
    found = {
        "assemble": tm.distributed_element_assemble(Reaction, dmesh, call_kwargs=call),
        "per rank": tm.distributed_element_assemble_per_rank(
            Reaction, dmesh, rank, call_kwargs=call
        ),
        "decorator": distributed(Reaction).from_mesh(dmesh)(**call),
    }
    singles = {name: K.to_single() for name, K in found.items()}
    singles["to sparse"] = tm.distributed_element_assemble_to_sparse(
        Reaction, dmesh, call_kwargs=call
    )
    vectors = {
        "assemble": tm.distributed_node_assemble(VectorLoad, dmesh),
        "decorator": distributed(VectorLoad).from_mesh(dmesh)(),
    }
    return {
        "shapes": {tuple(K.shape) for K in (*found.values(), *singles.values())},
        "matrices": {name: K.to_dense() for name, K in singles.items()},
        "vectors": {name: dmesh.gather(f) for name, f in vectors.items()},
        "lengths": {len(f) for f in vectors.values()} == {2 * dmesh.index_map.n_owned},
    }


@pytest.mark.parametrize("n", SIZES)
def test_vector_forms_at_every_entry_point(ranks: RankPool, n: int) -> None:
    """known-faults | 19: a vector-valued form at every entry point gives [n H, n H]."""
    mesh = mesh_of("mixed")
    K = Reaction.from_mesh(mesh)(**two_fields(mesh)).to_dense()
    f = VectorLoad.from_mesh(mesh)()
    for got in ranks(n, vector_forms):
        assert got["shapes"] == {(2 * mesh.n_points, 2 * mesh.n_points)}
        assert got["lengths"]
        for name, A in got["matrices"].items():
            torch.testing.assert_close(A, K, rtol=0, atol=1e-13, msg=name)
        for name, b in got["vectors"].items():
            torch.testing.assert_close(b, f, rtol=0, atol=1e-14, msg=name)


class Hermitian(tm.ElementAssembler):
    """``<u, v> + <grad u, grad v> + i (u dv/dx - v du/dx)``: complex, its own adjoint."""

    def forward(self, u, v, gradu, gradv):
        return u * v + gradu @ gradv + 0.5j * (gradu[0] * v - u * gradv[0])


def complex_solve(device_mesh: DeviceMesh) -> dict[str, Tensor]:
    mesh = mesh_of("tri")
    dmesh = dmesh_of(mesh, device_mesh)
    K = tm.distributed_element_assemble(Hermitian, dmesh)
    M = tm.distributed_element_assemble(tm.MassElementAssembler, dmesh)
    b = dmesh.scatter(torch.exp(1j * mesh.points[:, 0]))
    return {
        "K": dmesh.gather(K.solve(b, rtol=1e-12)),
        "M": dmesh.gather(M.solve(b, rtol=1e-12)),
        "product": dmesh.gather(K.T @ b),
    }


@pytest.mark.parametrize("n", SIZES)
def test_complex_solve_and_transpose_product(ranks: RankPool, n: int) -> None:
    """known-faults | 25: complex solve; transpose product."""
    mesh = mesh_of("tri")
    K = Hermitian.from_mesh(mesh)().to_dense()
    M = tm.MassElementAssembler.from_mesh(mesh)().to_dense()
    b = torch.exp(1j * mesh.points[:, 0])
    torch.testing.assert_close(K, K.mH)
    for got in ranks(n, complex_solve):
        torch.testing.assert_close(got["K"], torch.linalg.solve(K, b), rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(got["M"], torch.linalg.solve(M + 0j, b), rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(got["product"], K.T @ b, rtol=0, atol=1e-13)


def with_strangers() -> tm.Mesh:
    """Points that no cell uses, at the beginning, between the others and at the end."""
    grid = tm.Mesh.gen_rectangle(n=(3, 3))
    place = torch.tensor([1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 13, 14, 15, 16, 17, 18])
    points = torch.full((20, 2), 9.0, dtype=grid.dtype)
    points[place] = grid.points
    return tm.Mesh.from_arrays(points, {"triangle": place[grid.cells["triangle"]]})


def strangers(device_mesh: DeviceMesh | None, rule: str) -> dict[str, Any]:
    mesh = with_strangers()
    dmesh = tm.DistributedMesh(mesh, 3, device_mesh=device_mesh, ownership=rule)
    K = tm.distributed_element_assemble(tm.LaplaceElementAssembler, dmesh)
    f = tm.distributed_node_assemble(tm.const_node_assembler(), dmesh)
    condenser = tm.Condenser(mesh.boundary_mask)
    K_i, f_i = condenser(K, f)
    return {
        "f": dmesh.gather(f),
        "u": dmesh.gather(condenser.recover(K_i.solve(f_i, rtol=1e-12))),
        "round trip": dmesh.gather(dmesh.scatter(mesh.points)),
        "refused": outcome(K.solve, f),
    }


@pytest.mark.parametrize("rule", ["lowest", "balanced"])
def test_points_without_cells(ranks: RankPool, rule: str) -> None:
    """known-faults | 32: points without cells have no equation, and are left out."""
    mesh = with_strangers()
    f = tm.const_node_assembler().from_mesh(mesh)()
    condenser = tm.Condenser(mesh.boundary_mask)
    K_i, f_i = condenser(tm.LaplaceElementAssembler.from_mesh(mesh)(), f)
    u = condenser.recover(K_i.solve(f_i))
    for got in [*ranks(3, strangers, rule), strangers(None, rule)]:
        torch.testing.assert_close(got["f"], f, rtol=0, atol=1e-14)
        torch.testing.assert_close(got["u"], u, rtol=0, atol=1e-11)
        assert torch.equal(got["round trip"], mesh.points)
        assert got["refused"][0] == "SingularMatrixError"


class Unreadable(tm.Mesh):
    """A mesh whose cells nobody may look at."""

    def top_cells(self) -> dict[str, Tensor]:
        raise InterruptedError("work was begun")


def too_many(device_mesh: DeviceMesh, n_parts: int) -> list[tuple[str, str] | None]:
    mesh = mesh_of("tri")
    mesh.__class__ = Unreadable
    return [
        outcome(tm.DistributedMesh, mesh, n_parts, method, device_mesh=device_mesh)
        for method in ("coordinate", "metis", "spectral")
    ]


@pytest.mark.parametrize("n_parts", [1, 2, 4])
def test_world_size_is_checked_before_any_work(ranks: RankPool, n_parts: int) -> None:
    """known-faults | 33: world size != parts is an error on every rank, before any work."""
    for errors in ranks(3, too_many, n_parts):
        for error in errors:
            assert error is not None
            assert error[0] == "ValueError"
            assert f"num_partitions = {n_parts}" in error[1]
            assert "3 ranks" in error[1]


def cut_by_labels(device_mesh: DeviceMesh, dtype: torch.dtype) -> list[Any]:
    """Rank 1 has one cell and owns nothing; rank 2 has most."""
    mesh = mesh_of("grid").to(torch.float32)
    with labelled([0] * 8 + [1] + [2] * 9):
        dmesh = tm.DistributedMesh(mesh, device_mesh=device_mesh)
    scale = torch.tensor(2.0, dtype=dtype)
    K = distributed(Scaled).from_mesh(dmesh)(scalar_data={"scale": scale})
    f = distributed(ScaledLoad).from_mesh(dmesh)(scalar_data={"scale": scale})
    return [K.values.dtype, f.dtype, dmesh.gather(f).sum().item(), float(K.norm())]


class Scaled(tm.ElementAssembler):
    def forward(self, u, v, scale):
        return scale * u * v


class ScaledLoad(tm.NodeAssembler):
    def forward(self, v, scale):
        return scale * v


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
def test_small_parts_keep_the_dtype(ranks: RankPool, dtype: torch.dtype) -> None:
    """known-faults | 30: a rank with next to nothing, float32 or complex: the same dtype."""
    found = ranks(3, cut_by_labels, dtype)
    for kept_by_matrix, kept_by_vector, total, norm in found:
        assert kept_by_matrix == kept_by_vector == dtype
        assert complex(total) == pytest.approx(2.0, rel=1e-5)
        assert norm == found[0][3]
