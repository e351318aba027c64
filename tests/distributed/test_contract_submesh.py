"""Problems on sub-meshes: two at the same time, each equal to its serial answer."""

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh as torch_init_device_mesh

import tensormesh as tm
from tensormesh.distributed import distributed
from tensormesh.distributed.collectives import all_reduce_sum
from tensormesh.distributed.device_mesh import DeviceMesh, init_device_mesh
from tests.distributed.cases import Flux, mesh_of, outcome
from tests.rank_pool import RankPool

NAMES = ("replica", "domain")
KINDS = ("tri", "tet")  # the mesh of each replica
METHODS = ("metis", "coordinate")


class Diffusion(tm.ElementAssembler):
    def __post_init__(self, k: float) -> None:
        self.k = nn.Parameter(torch.tensor(k, dtype=torch.float64))

    def forward(self, gradu, gradv, x):
        return self.k * (1.0 + x[0]) * (gradu @ gradv)


class Source(tm.NodeAssembler):
    def forward(self, v, a):
        return a * v


def grid(kind: str) -> tuple[int, Any, Any]:
    """Replica of this rank, the ranks of its domain and of its place in all replicas."""
    if kind == "torch":
        theirs = torch_init_device_mesh("cpu", (2, 2), mesh_dim_names=NAMES)
        return theirs.get_local_rank("replica"), theirs["domain"], theirs["replica"]
    ours = init_device_mesh("cpu", (2, 2), mesh_dim_names=NAMES)
    domain = ours["domain"] if kind == "ours" else DeviceMesh.from_torch(ours["domain"].to_torch())
    return ours.get_local_rank("replica"), domain, ours["replica"]


def problem(replica: int, dmesh: tm.DistributedMesh | None, mesh: tm.Mesh) -> Tensor:
    """Source, flux and boundary values; the solution for all nodes."""
    source, flux = {"a": mesh.points[:, 0] + replica}, {"a": mesh.points[:, 1] ** 2}
    fixed = mesh.points[:, 0] < 1e-9
    if dmesh is None:
        K = Diffusion.from_mesh(mesh, k=2.0 + replica)()
        f = Source.from_mesh(mesh)(point_data=source)
        g = Flux.from_mesh(mesh, "right")(point_data=flux).view(-1, mesh.dim)[:, 0]
        condenser = tm.Condenser(fixed, mesh.points[:, 1])
        K_i, f_i = condenser(K, f + g)
        return condenser.recover(K_i.solve(f_i)).detach()
    K = distributed(Diffusion).from_mesh(dmesh, k=2.0 + replica)()
    f = distributed(Source).from_mesh(dmesh)(point_data=source)
    g = distributed(Flux).from_mesh(dmesh, "right")(point_data=flux).view(-1, mesh.dim)[:, 0]
    condenser = tm.Condenser(fixed, mesh.points[:, 1])
    K_i, f_i = condenser(K.detach(), f + g)
    return dmesh.gather(condenser.recover(K_i.solve(f_i, rtol=1e-12)))


def side_by_side(device_mesh: DeviceMesh, kind: str) -> dict[str, Any]:
    replica, domain, _ = grid(kind)
    mesh = mesh_of(KINDS[replica])
    dmesh = tm.DistributedMesh(mesh, method=METHODS[replica], device_mesh=domain)
    return {
        "u": problem(replica, dmesh, mesh),
        "parts": (len(dmesh), dmesh.quality().cells.tolist(), [p.number for p in dmesh.parts]),
        "uuid": dmesh.partition_uuid,
        "mesh": dmesh.device_mesh.mesh.tolist(),
    }


@pytest.mark.parametrize("kind", ["ours", "torch", "from torch"])
def test_two_problems_at_once_each_equal_to_its_serial_answer(ranks: RankPool, kind: str) -> None:
    """distributed-api Device meshes | `device_mesh=`: a 1-D sub-mesh, ours or torch's."""
    serial = [problem(replica, None, mesh_of(KINDS[replica])) for replica in (0, 1)]
    found = ranks(4, side_by_side, kind)
    for rank, got in enumerate(found):
        replica, place = divmod(rank, 2)
        torch.testing.assert_close(got["u"], serial[replica], rtol=0, atol=1e-10)
        n_parts, cells, numbers = got["parts"]
        assert (n_parts, numbers) == (2, [place])
        assert sum(cells) == mesh_of(KINDS[replica]).n_elements
        assert got["mesh"] == [2 * replica, 2 * replica + 1]
    assert found[0]["uuid"] == found[1]["uuid"] != found[2]["uuid"] == found[3]["uuid"]


SOLVERS: tuple[dict[str, Any], ...] = (
    {"method": "cg", "preconditioner": "multilevel"},
    {"method": "minres", "preconditioner": "jacobi"},
)


def by_different_methods(device_mesh: DeviceMesh) -> tuple[str, str, float]:
    replica, domain, _ = grid("ours")
    mesh = mesh_of(KINDS[replica])
    dmesh = tm.DistributedMesh(mesh, device_mesh=domain)
    K = distributed(Diffusion).from_mesh(dmesh, k=2.0 + replica)().detach()
    f = distributed(Source).from_mesh(dmesh)(point_data={"a": mesh.points[:, 0]})
    K_i, f_i = tm.Condenser(mesh.points[:, 0] < 1e-9)(K, f)
    x, info = K_i.solve(f_i, rtol=1e-10, return_info=True, **SOLVERS[replica])
    whole = K_i.to_single().to_dense()
    exact = torch.linalg.solve(whole, K_i.layout.vectors.gather(f_i))
    found = K_i.layout.vectors.gather(x)
    return info.method, info.preconditioner, float((found - exact).norm() / exact.norm())


def test_replicas_solve_by_different_methods_at_once(ranks: RankPool) -> None:
    """device-mesh Beyond | 2-D jobs: levels on one replica, minres on the other."""
    for rank, (method, preconditioner, error) in enumerate(ranks(4, by_different_methods)):
        assert {"method": method, "preconditioner": preconditioner} == SOLVERS[rank // 2]
        assert error < 1e-8


def averaged(device_mesh: DeviceMesh) -> dict[str, float]:
    """Gradient of a loss of each replica, averaged as data-parallel training does."""
    replica, domain, replicas = grid("ours")
    mesh = mesh_of(KINDS[replica])
    dmesh = tm.DistributedMesh(mesh, device_mesh=domain)
    asm = distributed(Diffusion).from_mesh(dmesh, k=1.5)
    u = dmesh.scatter(torch.sin(3 * mesh.points[:, 0]))
    (dmesh.dot(u, asm() @ u) ** 2).backward()
    own = asm.k.grad.clone()
    by_collective = all_reduce_sum(own, replicas) / replicas.size()
    by_group = own.clone()
    dist.all_reduce(by_group, group=replicas.get_group())
    return {
        "own": float(own),
        "collective": float(by_collective),
        "group": float(by_group) / replicas.size(),
    }


def test_gradients_are_averaged_over_the_replicas(ranks: RankPool) -> None:
    """device-mesh Beyond | 2-D jobs: independent problems, gradients averaged over replicas."""
    expected = []
    for kind in KINDS:
        mesh = mesh_of(kind)
        asm = Diffusion.from_mesh(mesh, k=1.5)
        u = torch.sin(3 * mesh.points[:, 0])
        ((u @ (asm() @ u)) ** 2).backward()
        expected.append(float(asm.k.grad))
    assert abs(expected[0] - expected[1]) > 1e-3
    for rank, got in enumerate(ranks(4, averaged)):
        assert got["own"] == pytest.approx(expected[rank // 2], rel=1e-12)
        assert got["collective"] == pytest.approx(sum(expected) / 2, rel=1e-12)
        assert got["group"] == pytest.approx(sum(expected) / 2, rel=1e-12)


def trouble_on_one_replica(device_mesh: DeviceMesh, wrong_rank: int) -> dict[str, Any]:
    replica, domain, _ = grid("ours")
    mesh = mesh_of(KINDS[replica])
    wrong = dist.get_rank() == wrong_rank
    dmesh = tm.DistributedMesh(mesh, device_mesh=domain)
    steps = {
        "cut": lambda: tm.DistributedMesh(
            mesh, method="nonsense" if wrong else "metis", device_mesh=domain
        ),
        "data": lambda: distributed(Source).from_mesh(dmesh)(
            point_data={"a": torch.ones(3 if wrong else mesh.n_points)}
        ),
        "form": lambda: distributed(Diffusion).from_mesh(dmesh, k="x" if wrong else 1.0),
    }
    found = {name: outcome(step) for name, step in steps.items()}
    return found | {"u": problem(replica, dmesh, mesh)}


@pytest.mark.parametrize("wrong_rank", [0, 3])
def test_an_error_on_one_replica_leaves_the_other_alone(ranks: RankPool, wrong_rank: int) -> None:
    """device-mesh Beyond | 2-D jobs: an error on one replica is an error of that one only."""
    serial = [problem(replica, None, mesh_of(KINDS[replica])) for replica in (0, 1)]
    for rank, got in enumerate(ranks(4, trouble_on_one_replica, wrong_rank)):
        replica = rank // 2
        torch.testing.assert_close(got.pop("u"), serial[replica], rtol=0, atol=1e-10)
        for name, error in got.items():
            assert (error is not None) == (replica == wrong_rank // 2), (rank, name, error)


def outside(device_mesh: DeviceMesh) -> dict[str, Any]:
    ours = init_device_mesh("cpu", (2, 2), mesh_dim_names=NAMES)
    mesh = mesh_of("tri")
    rank = dist.get_rank()
    pair = DeviceMesh("cpu", [2, 0])
    found: dict[str, Any] = {"2-D": outcome(tm.DistributedMesh, mesh, device_mesh=ours)}
    found["text"] = outcome(tm.DistributedMesh, mesh, device_mesh="domain")
    outcome(pair.get_group)  # making groups takes all ranks
    if rank in (0, 2):
        dmesh = tm.DistributedMesh(mesh, device_mesh=pair)
        found["parts"] = [part.number for part in dmesh.parts]
        f = tm.distributed_node_assemble(tm.const_node_assembler(), dmesh)
        found["area"] = float(dmesh.sum(f))
    else:
        found["outside"] = outcome(tm.DistributedMesh, mesh, device_mesh=pair)
    return found


def test_ranks_in_any_order_and_ranks_outside(ranks: RankPool) -> None:
    """distributed-api Device meshes | `device_mesh=`: ranks in any order; others are refused."""
    found = ranks(4, outside)
    assert found[2]["parts"] == [0]
    assert found[0]["parts"] == [1]
    assert found[0]["area"] == found[2]["area"] == pytest.approx(1.0)
    for rank, got in enumerate(found):
        assert got["2-D"][0] == "ValueError"
        assert got["text"][0] == "TypeError"
        if rank in (1, 3):
            assert got["outside"][0] == "RuntimeError"
