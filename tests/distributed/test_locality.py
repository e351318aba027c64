"""Numbering inside a part: near for neighbours, invisible outside."""

import pytest
import torch
from torch import Tensor

import tensormesh as tm
from tensormesh.distributed.device_mesh import DeviceMesh
from tests.rank_pool import RankPool


def shuffled() -> tm.Mesh:
    """Cube of tetrahedra whose nodes and cells are numbered at random."""
    mesh = tm.Mesh.gen_cube(element_type="tet", n=(8, 8, 8))
    random = torch.Generator().manual_seed(3)
    place = torch.randperm(mesh.n_points, generator=random)
    points = torch.empty_like(mesh.points)
    points[place] = mesh.points
    (cells,) = mesh.top_cells().values()
    order = torch.randperm(len(cells), generator=random)
    return tm.Mesh.from_arrays(points, {"tetra": place[cells][order]})


class Weighted(tm.ElementAssembler):
    """Depends on the place, on nodes and on cells."""

    def forward(self, u, v, gradu, gradv, x, a, k):
        return k * (gradu @ gradv) + a * u * v + x[0] * gradu[1] * v


def data(mesh: tm.Mesh) -> dict[str, dict[str, Tensor]]:
    numbers = torch.arange(mesh.n_elements, dtype=torch.float64)
    return {
        "point_data": {"a": 1 + mesh.points[:, 2] ** 2},
        "element_data": {"k": 1 + torch.sin(numbers) ** 2},
    }


def assembled(device_mesh: DeviceMesh) -> dict[str, Tensor]:
    mesh = shuffled()
    dmesh = tm.DistributedMesh(mesh, device_mesh=device_mesh)
    K = tm.distributed_element_assemble(Weighted, dmesh, call_kwargs=data(mesh))
    x = torch.cos(torch.arange(mesh.n_points, dtype=torch.float64))
    part = dmesh.submeshes[device_mesh.get_local_rank()]
    (cells,) = part.top_cells().values()
    f = tm.distributed_node_assemble(tm.const_node_assembler(), dmesh)
    return {
        "matrix": K.to_single().to_dense(),
        "product": dmesh.gather(K @ dmesh.scatter(x)),
        "transposed": dmesh.gather(K.T @ dmesh.scatter(x)),
        "load": dmesh.gather(f),
        "boundary": dmesh.boundary_mask,
        "ids": part.point_data["orig_nid"],
        "facets": torch.tensor(float(len(part.boundary_facets()))),
        "span": (cells.amax(1) - cells.amin(1)).double().mean() / part.n_points,
    }


@pytest.mark.parametrize("n", [1, 2, 3])
def test_numbers_of_the_mesh_are_seen_outside(ranks: RankPool, n: int) -> None:
    mesh = shuffled()
    K = Weighted.from_mesh(mesh)(**data(mesh))
    x = torch.cos(torch.arange(mesh.n_points, dtype=torch.float64))
    expected = {
        "matrix": K.to_dense(),
        "product": K @ x,
        "transposed": K.T @ x,
        "load": tm.const_node_assembler().from_mesh(mesh)(),
    }
    found = ranks(n, assembled)
    for of_rank in found:
        for name, values in expected.items():
            torch.testing.assert_close(of_rank[name], values, rtol=1e-12, atol=1e-13)
        assert torch.equal(of_rank["boundary"], mesh.topological_boundary_mask()[of_rank["ids"]])
    assert sum(float(of_rank["facets"]) for of_rank in found) == 6 * 8 * 8 * 2


def test_neighbours_are_near(ranks: RankPool) -> None:
    (cells,) = shuffled().top_cells().values()
    random = float((cells.amax(1) - cells.amin(1)).double().mean()) / 9**3
    for of_rank in ranks(2, assembled):
        # Two layers of 5 x 9 x 9 nodes, the level sets of which grow from a corner.
        assert float(of_rank["span"]) < 0.3 < random
