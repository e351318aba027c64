"""`DistributedMesh`: the parts, what a rank keeps of them, and what is refused."""

import gc
import weakref
from typing import Any

import pytest
import torch
import torch.distributed as dist

import tensormesh as tm
from tensormesh.distributed.device_mesh import DeviceMesh
from tests.distributed.cases import METHODS, dmesh_of, mesh_of, outcome
from tests.rank_pool import RankPool


def facts(device_mesh: DeviceMesh, kind: str, method: str) -> dict[str, Any]:
    mesh = mesh_of(kind)
    dmesh = dmesh_of(mesh, device_mesh, method)
    return {
        "parts": [
            {
                "nodes": part.point_data["orig_nid"],
                "cells": {k: part.cell_data["orig_cid"][k] for k in part.top_cells()},
                "points": part.points,
            }
            for part in dmesh.submeshes
        ],
        "owned": dmesh.index_map.owned_ids,
        "ghosts": dmesh.index_map.ghost_ids,
        "len": (len(dmesh), dmesh.num_partitions, dmesh.n_global_points),
        "repr": repr(dmesh),
        "quality": dmesh.quality(),
        "uuid": dmesh.partition_uuid,
    }


@pytest.mark.parametrize("kind", ["tri", "mixed", "tetra10"])
@pytest.mark.parametrize("method", METHODS)
def test_parts_cover_the_mesh_and_ranks_agree(ranks: RankPool, kind: str, method: str) -> None:
    """distributed-api DistributedMesh | parts: every cell in one, `orig_nid`; ranks agree.
    distributed-api DistributedMesh | `method`: coordinate, spectral, metis.

    features | DistributedMesh: distributed.
    """
    mesh = mesh_of(kind)
    found = ranks(3, facts, kind, method)
    assert len({got["uuid"] for got in found}) == 1
    assert 0 <= found[0]["uuid"] < 2**63
    # The lowest part with a cell on a node owns it.
    owner = torch.full((mesh.n_points,), 3)
    for number in (2, 1, 0):
        owner[found[0]["parts"][number]["nodes"]] = number
    for rank, got in enumerate(found):
        assert got["len"] == (3, 3, mesh.n_points)
        assert f"part {rank}" in got["repr"]
        for cut, same in zip(got["parts"], found[0]["parts"], strict=True):
            assert torch.equal(cut["nodes"], same["nodes"])
            assert torch.equal(cut["points"], mesh.points[cut["nodes"]])
        assert torch.equal(got["owned"], (owner == rank).nonzero().flatten())
        mine = got["parts"][rank]["nodes"]
        assert torch.equal(got["ghosts"].sort().values, mine[owner[mine] != rank])
        assert torch.equal(owner[got["ghosts"]], owner[got["ghosts"]].sort().values)
    for name, cells in mesh.top_cells().items():
        taken = [part["cells"][name] for part in found[0]["parts"] if name in part["cells"]]
        assert torch.equal(torch.cat(taken).sort().values, torch.arange(len(cells)))
    q = found[0]["quality"]
    assert q.cells.tolist() == [sum(map(len, p["cells"].values())) for p in found[0]["parts"]]
    assert q.owned.tolist() == [len(got["owned"]) for got in found]
    assert q.ghosts.tolist() == [len(got["ghosts"]) for got in found]
    assert str(q).count("\n") == 4


def test_one_process_cuts_as_ranks_do(ranks: RankPool) -> None:
    """distributed-api DistributedMesh | quality: the same parts in a job and in one process.

    features | DistributedMesh: serial.
    """
    found = ranks(3, facts, "tri", "metis")
    dmesh = tm.DistributedMesh(mesh_of("tri"), 3, "metis")
    for part, same in zip(dmesh, found[0]["parts"], strict=True):
        assert torch.equal(part.point_data["orig_nid"], same["nodes"])
    assert torch.equal(dmesh.quality().interface_facets, found[0]["quality"].interface_facets)
    assert dmesh.quality().edge_cut == found[0]["quality"].edge_cut > 0


def test_rcb_in_three_parts_is_even() -> None:
    """known-faults | 22: RCB in 3 parts of 246 triangles: 82 each."""
    mesh = tm.Mesh.gen_rectangle(n=(41, 3))
    assert tm.DistributedMesh(mesh, 3).quality().cells.tolist() == [82, 82, 82]


# ---- parts of other ranks ----


def parts_on_demand(device_mesh: DeviceMesh, weighted: bool) -> dict[str, Any]:
    mesh = mesh_of("tri")
    weights = torch.arange(1.0, mesh.n_elements + 1) if weighted else None
    dmesh = tm.DistributedMesh(mesh, device_mesh=device_mesh, weights=weights)
    n_points = [part.n_points for part in dmesh.submeshes]
    other = (device_mesh.get_local_rank() + 1) % 3
    found = {
        "sizes": n_points,
        "negative": dmesh[-1].n_points,
        "slice": [part.n_points for part in dmesh.submeshes[1:]],
        "beyond": outcome(dmesh.__getitem__, 3),
    }
    alive = [weakref.ref(thing) for thing in (mesh, weights) if thing is not None]
    del mesh, weights
    gc.collect()
    found["released"] = [thing() for thing in alive] == [None] * (1 + weighted)
    found["own"] = dmesh[device_mesh.get_local_rank()].n_points
    found["other"] = outcome(dmesh.__getitem__, other)
    K = tm.distributed_element_assemble(tm.MassElementAssembler, dmesh)
    found["area"] = float(dmesh.sum(K @ torch.ones_like(K.diagonal())))
    return found


@pytest.mark.parametrize("weighted", [False, True])
def test_parts_of_other_ranks_come_while_the_mesh_lives(ranks: RankPool, weighted: bool) -> None:
    """distributed-api DistributedMesh | memory: other parts while the global mesh is alive."""
    found = ranks(3, parts_on_demand, weighted)
    for rank, got in enumerate(found):
        assert got["sizes"] == found[0]["sizes"]
        assert got["sizes"][2] == got["negative"] == got["slice"][1]
        assert got["beyond"][0] == "IndexError"
        assert got["released"]
        assert got["own"] == got["sizes"][rank]
        assert got["other"][0] == "RuntimeError"
        assert "keep a reference" in got["other"][1]
        assert got["area"] == pytest.approx(1.0, rel=1e-12)


# ---- moved points ----


def moved(device_mesh: DeviceMesh | None) -> dict[str, Any]:
    mesh = tm.Mesh.gen_rectangle(n=(5, 4))
    dmesh = dmesh_of(mesh, device_mesh)
    asm = tm.distributed.distributed(tm.MassElementAssembler).from_mesh(dmesh)

    def area(**call: Any) -> float:
        K = asm(**call)
        return float(dmesh.sum(K @ torch.ones_like(K.diagonal())))

    found: dict[str, Any] = {"first": area(), "given": area(points=2 * mesh.points)}
    found["kept"] = area()
    ids = dmesh.parts[0].node_ids
    if dmesh.in_job:
        found["part"] = area(points=3 * mesh.points[ids])
        found["owned"] = area(points=3 * dmesh.scatter(mesh.points))
    mesh.points = 2 * mesh.points
    found["replaced"] = outcome(area)
    dmesh = dmesh_of(mesh, device_mesh)
    asm = tm.distributed.distributed(tm.MassElementAssembler).from_mesh(dmesh)
    mesh.points.mul_(2.0)
    found["in place"] = outcome(area)
    return found


@pytest.mark.parametrize("n", [0, 1, 3])
def test_moved_points_are_used_or_refused(ranks: RankPool, n: int) -> None:
    """known-faults | 28: moved points, `points=` or a changed mesh: new geometry, or an error."""
    for found in ranks(n, moved) if n else [moved(None)]:
        assert found["first"] == pytest.approx(1.0)
        assert found["given"] == pytest.approx(4.0)
        assert found["kept"] == pytest.approx(4.0)  # as of a serial assembler
        assert found.get("part", 9.0) == pytest.approx(9.0)
        assert found.get("owned", 9.0) == pytest.approx(9.0)
        for how in ("replaced", "in place"):
            assert found[how][0] == "ValueError"
            assert "points=" in found[how][1]


# ---- before and after a job begins ----


def test_a_mesh_cut_before_the_job_began_is_refused() -> None:
    """distributed-api per-rank assembly | before the job: a mesh cut then is refused."""
    early = tm.DistributedMesh(tm.Mesh.gen_rectangle(n=(4, 4)), 2)
    with pytest.raises(RuntimeError, match="init_process_group"):
        tm.distributed.distributed_element_assemble_per_rank(tm.MassElementAssembler, early, 0)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        for call in (
            lambda: tm.distributed_element_assemble(tm.MassElementAssembler, early),
            lambda: tm.distributed.distributed_element_assemble_per_rank(
                tm.MassElementAssembler, early, 0
            ),
            lambda: tm.distributed_node_assemble(tm.const_node_assembler(), early),
            lambda: tm.distributed.distributed(tm.MassElementAssembler).from_mesh(early),
        ):
            with pytest.raises(ValueError, match="before init_process_group"):
                call()
    finally:
        dist.destroy_process_group()


def test_errors_name_the_argument() -> None:
    """distributed-api DistributedMesh | errors: each names the argument and the value.
    distributed-api DistributedMesh | `num_partitions`: the number of CUDA devices, or 2.
    distributed-api DistributedMesh | `devices`: one a part, else an error.
    known-faults | 21: method "nonsense" is a `ValueError`.
    """
    mesh = tm.Mesh.gen_rectangle(n=(2, 2))
    nan, beyond = mesh.clone(), mesh.clone()
    nan.points[3, 0] = float("nan")
    beyond.cells["triangle"][1, 2] = 9
    for wrong, kwargs, name in (
        (mesh, {"method": "nonsense"}, "nonsense"),
        (mesh, {"num_partitions": 0}, "num_partitions"),
        (mesh, {"num_partitions": 9}, "num_partitions = 9, but the mesh has only 8 cells"),
        (mesh, {"num_partitions": 2.0}, "num_partitions"),
        (mesh, {"num_partitions": 2, "devices": ["cpu"]}, "devices"),
        (mesh, {"num_partitions": 2, "devices": "cpu"}, "devices"),
        (nan, {"num_partitions": 2}, "Point 3 of cell 1"),
        (beyond, {"num_partitions": 2}, "9"),
        (tm.Mesh.from_arrays(mesh.points, {}), {}, "cells"),
    ):
        with pytest.raises(ValueError, match=name):
            tm.DistributedMesh(wrong, **kwargs)
    with pytest.raises(TypeError, match="mesh"):
        tm.DistributedMesh("bracket.msh")
    assert tm.DistributedMesh(mesh).num_partitions == (torch.cuda.device_count() or 2)
    assert tm.DistributedMesh(mesh, 8).quality().cells.tolist() == [1] * 8
