"""Several fields on ranks: the matrix, the load and the solution of one process."""

from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

import tensormesh as tm
from tensormesh.distributed import distributed
from tensormesh.distributed.device_mesh import DeviceMesh
from tests.assemble.stokes import LOAD, OSEEN, at_vertices, conditions, stokes_data
from tests.distributed.cases import METHODS, NOTHING_OWNED, dmesh_of, mesh_of, outcome
from tests.mesh.test_raised import all_shapes
from tests.rank_pool import RankPool

KINDS = ("tri", "quad", "mixed", "tet", "all shapes")


def raised(kind: str) -> tm.Mesh:
    return (all_shapes(2) if kind == "all shapes" else mesh_of(kind)).raised(2)


def oseen_data(mesh: tm.Mesh) -> dict[str, Any]:
    return {"point_data": {"w": 1.0 + mesh.points**2}, "scalar_data": {"k": 0.8}}


@cache
def serial(kind: str) -> list[Tensor]:
    mesh = raised(kind)
    K = OSEEN[mesh.dim].from_mesh(mesh)(**oseen_data(mesh))
    return [K.row, K.col, K.values, LOAD[mesh.dim].from_mesh(mesh)()]


def on_ranks(device_mesh: DeviceMesh, kinds: tuple[str, ...]) -> dict[Any, list[Tensor]]:
    found = {}
    for kind in kinds:
        mesh = raised(kind)
        for method in METHODS if kind == "tri" else METHODS[:1]:
            dmesh = dmesh_of(mesh, device_mesh, method)
            assemble = tm.distributed_element_assemble
            K = assemble(OSEEN[mesh.dim], dmesh, call_kwargs=oseen_data(mesh)).to_single()
            f = dmesh.gather(tm.distributed_node_assemble(LOAD[mesh.dim], dmesh))
            found[kind, method] = [K.row, K.col, K.values, f]
    return found


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_ranks_assemble_what_one_process_does(ranks: RankPool, n: int) -> None:
    kinds = KINDS if n == 3 else ("all shapes",)
    for cases in ranks(n, on_ranks, kinds, timeout=120.0):
        for (kind, method), found in cases.items():
            for ours, whole in zip(found, serial(kind), strict=True):
                label = f"{kind} {method} {n} ranks"
                if whole.dtype == torch.float64:
                    assert (ours - whole).abs().max() <= 1e-12 * whole.abs().max(), label
                else:
                    assert torch.equal(ours, whole), label


# -- solutions ---------------------------------------------------------------------------------

SOLVES = ({"method": "minres"}, {"method": "gmres", "restart": 200}, {"method": "direct"})


def solutions(device_mesh: DeviceMesh, kind: str) -> list[Tensor]:
    """Stokes by each method, with its conditions in another form; then fields at all nodes."""
    mesh = raised(kind)
    dmesh = dmesh_of(mesh, device_mesh)
    asm = distributed(OSEEN[mesh.dim]).from_mesh(dmesh)
    f = distributed(LOAD[mesh.dim]).from_mesh(dmesh)()
    given = conditions(mesh, asm.layout)
    owned = [dmesh.scatter(x) for x in given]
    part = [x.view(mesh.n_points, -1)[dmesh.parts[0].node_ids].flatten() for x in given]
    found = []
    for options, (mask, values) in zip(SOLVES, (given, owned, part), strict=True):
        condenser = tm.Condenser(mask, values)
        K, b = condenser(asm(**stokes_data(mesh)), f)
        assert float(dmesh.sum(torch.ones_like(b))) == n_free(mesh, given[0])
        found.append(condenser.recover(K.solve(b, rtol=1e-12, **options)))
    fields = asm.at_nodes(found[-1])
    return [dmesh.gather(x) for x in (*found, fields["u"].flatten(), fields["p"])]


def n_free(mesh: tm.Mesh, mask: Tensor) -> float:
    present = torch.ones(mesh.n_points, mesh.dim + 1, dtype=torch.bool)
    present[:, -1] = at_vertices(mesh)
    return float((present.flatten() & ~mask).sum())


@cache
def serial_solution(kind: str) -> tuple[Tensor, dict[str, Tensor]]:
    mesh = raised(kind)
    asm = OSEEN[mesh.dim].from_mesh(mesh)
    condenser = tm.Condenser(*conditions(mesh, asm.layout))
    K, b = condenser(asm(**stokes_data(mesh)), LOAD[mesh.dim].from_mesh(mesh)())
    x = condenser.recover(K.solve(b))
    return x, asm.at_nodes(x)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_ranks_solve_what_one_process_does(ranks: RankPool, n: int) -> None:
    """features | MixedElementAssembler, MixedNodeAssembler, Field, BlockLayout: distributed."""
    x, fields = serial_solution("grid")
    for *found, u, p in ranks(n, solutions, "grid", timeout=120.0):
        assert len(found) == len(SOLVES)
        for options, ours in zip(SOLVES, found, strict=True):
            assert (ours - x).abs().max() < 1e-8 * x.abs().max(), options
        assert (u - fields["u"].flatten()).abs().max() < 1e-10
        assert (p - fields["p"]).abs().max() < 1e-10


def gradients(device_mesh: DeviceMesh) -> tuple[Tensor, ...]:
    mesh = raised("tri")
    dmesh = dmesh_of(mesh, device_mesh)
    asm = distributed(OSEEN[2]).from_mesh(dmesh)
    k = torch.tensor(0.8, dtype=torch.float64, requires_grad=True)
    w = mesh.points.clone().requires_grad_()
    K = asm(point_data={"w": w}, scalar_data={"k": k})
    x = dmesh.scatter(asm.layout.join({"u": mesh.points.sin(), "p": mesh.points[:, 0].cos()}))
    dmesh.dot(x, K @ x.square()).backward()
    assert k.grad is not None
    assert w.grad is not None
    return k.grad, w.grad


@pytest.mark.parametrize("n", [2, 3])
def test_gradients_are_those_of_one_process(ranks: RankPool, n: int) -> None:
    mesh = raised("tri")
    asm = OSEEN[2].from_mesh(mesh)
    k = torch.tensor(0.8, dtype=torch.float64, requires_grad=True)
    w = mesh.points.clone().requires_grad_()
    x = asm.layout.join({"u": mesh.points.sin(), "p": mesh.points[:, 0].cos()})
    (x @ (asm(point_data={"w": w}, scalar_data={"k": k}) @ x.square())).backward()
    for of_k, of_w in ranks(n, gradients):
        assert (of_k - k.grad).abs() < 1e-12
        assert (of_w - w.grad).abs().max() < 1e-12


def on_a_rank_that_owns_nothing(device_mesh: DeviceMesh) -> list[Tensor]:
    mesh = raised("grid")
    dmesh = dmesh_of(mesh, device_mesh, NOTHING_OWNED)
    asm = distributed(OSEEN[2]).from_mesh(dmesh)
    x = asm.layout.join({"u": mesh.points, "p": mesh.points[:, 0] * at_vertices(mesh)})
    p = asm.at_nodes(dmesh.scatter(x))["p"]
    return [asm(**oseen_data(mesh)).to_single().to_dense(), dmesh.gather(p)]


def test_a_rank_may_own_nothing(ranks: RankPool) -> None:
    mesh = raised("grid")
    expected = OSEEN[2].from_mesh(mesh)(**oseen_data(mesh)).to_dense()
    for found, p in ranks(2, on_a_rank_that_owns_nothing):
        assert (found - expected).abs().max() < 1e-14
        assert (p - mesh.points[:, 0]).abs().max() < 1e-14


def refused(device_mesh: DeviceMesh) -> tuple[str, str] | None:
    dmesh = dmesh_of(mesh_of("tri"), device_mesh)
    return outcome(tm.distributed_element_assemble, OSEEN[2], dmesh)


def test_a_field_of_another_order_is_refused_on_all_ranks(ranks: RankPool) -> None:
    for found in ranks(2, refused):
        assert found is not None
        assert found[0] == "ValueError"
        assert "mesh.raised(2)" in found[1]
