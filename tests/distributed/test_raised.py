"""Fields of another order than the mesh: the ranks assemble what one process does."""

from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

import tensormesh as tm
from tensormesh.distributed.device_mesh import DeviceMesh
from tests.distributed.cases import METHODS, Flux, Transport, data_of, dmesh_of, mesh_of, outcome
from tests.mesh.test_raised import all_shapes
from tests.rank_pool import RankPool

ORDERS = {"tri": 3, "mixed": 4, "tet": 3, "hex": 2, "wedge": 2}


def raised(kind: str) -> tm.Mesh:
    if kind == "all shapes":
        return all_shapes(2, ("hexahedron", "pyramid", "wedge", "tetra")).raised(2)
    return mesh_of(kind).raised(ORDERS[kind])


def flux_data(mesh: tm.Mesh) -> dict[str, Tensor]:
    return {"a": 1.0 + mesh.points[:, 1] ** 2}


@cache
def serial(kind: str) -> list[Tensor]:
    mesh = raised(kind)
    K = Transport.from_mesh(mesh)(**data_of(mesh))
    E = tm.LinearElasticityElementAssembler.from_mesh(mesh, E=3.0, nu=0.3)()
    f = Flux.from_mesh(mesh)(point_data=flux_data(mesh))
    return [K.row, K.col, K.values, E.values, f, mesh.boundary_mask]


def on_ranks(device_mesh: DeviceMesh, kinds: tuple[str, ...]) -> dict[Any, list[Tensor]]:
    found = {}
    for kind in kinds:
        mesh = raised(kind)
        for method in METHODS:
            dmesh = dmesh_of(mesh, device_mesh, method)
            assert all(part.mesh.geometry_order == 1 for part in dmesh.parts)
            assemble = tm.distributed_element_assemble
            K = assemble(Transport, dmesh, call_kwargs=data_of(mesh)).to_single()
            E = assemble(tm.LinearElasticityElementAssembler, dmesh, E=3.0, nu=0.3).to_single()
            f = tm.distributed_node_assemble(Flux, dmesh, point_data=flux_data(mesh))
            part = dmesh.submeshes[device_mesh.get_local_rank()]
            mask = torch.zeros(mesh.n_points)
            mask[part.point_data["orig_nid"]] = dmesh.boundary_mask.to(mask)
            masks = dmesh.gather(dmesh.scatter(mask))
            found[kind, method] = [K.row, K.col, K.values, E.values, dmesh.gather(f), masks > 0]
    return found


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_ranks_assemble_what_one_process_does(ranks: RankPool, n: int) -> None:
    """Order on its own | in a job: the values of one process, each shape and partitioner.

    features | Mesh.raised: distributed.
    """
    kinds = ("tri", "wedge") if n == 1 else tuple(ORDERS)
    kinds += ("all shapes",) if n < 4 else ()
    expected = {kind: serial(kind) for kind in kinds}
    for cases in ranks(n, on_ranks, kinds, timeout=120.0):
        assert len(cases) == len(kinds) * len(METHODS)
        for (kind, method), found in cases.items():
            for ours, whole in zip(found, expected[kind], strict=True):
                label = f"{kind} {method} {n} ranks"
                if whole.dtype == torch.float64:
                    assert (ours - whole).abs().max() <= 1e-12 * whole.abs().max(), label
                else:
                    assert torch.equal(ours, whole), label


def solved(device_mesh: DeviceMesh) -> tuple[float, Tensor]:
    """-div grad u = -2 on a cubic mesh of triangles, u = x^2 on the boundary."""
    mesh = mesh_of("tri").raised(3)
    dmesh = dmesh_of(mesh, device_mesh)
    K = tm.distributed_element_assemble(tm.LaplaceElementAssembler, dmesh)
    load = tm.func_node_assembler(lambda x: -2.0 + 0.0 * x[0])
    f = tm.distributed_node_assemble(load, dmesh)
    u = dmesh.scatter(mesh.points[:, 0] ** 2)
    condenser = tm.Condenser(dmesh.scatter(mesh.boundary_mask), u)
    K_inner, f_inner = condenser(K, f)
    found = condenser.recover(K_inner.solve(f_inner, rtol=1e-13))
    return float(dmesh.norm(found - u)), dmesh.gather(found)


@pytest.mark.parametrize("n", [1, 3])
def test_a_parabola_is_the_solution(ranks: RankPool, n: int) -> None:
    for error, _ in ranks(n, solved):
        assert error < 1e-10


def different_geometry(device_mesh: DeviceMesh) -> tuple[str, str] | None:
    mesh = mesh_of("tri").raised(2)
    if device_mesh.get_local_rank() == 1:
        mesh = tm.Mesh.from_arrays(mesh.points, mesh.cells.to_dict())
    return outcome(tm.DistributedMesh, mesh, device_mesh=device_mesh)


def test_ranks_that_differ_in_the_geometry_order_are_refused(ranks: RankPool) -> None:
    for found in ranks(2, different_geometry):
        assert found is not None
        assert found[0] == "ValueError"
        assert "different meshes" in found[1]
