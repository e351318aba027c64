"""Facet matrices, energies and values per quadrature point on ranks, and the quick start."""

from typing import Any

import pytest
import torch
from torch import Tensor

import tensormesh as tm
from tensormesh.assemble import NeoHookeanModel
from tensormesh.distributed import distributed
from tensormesh.distributed.device_mesh import DeviceMesh
from tests.distributed.cases import METHODS, NOTHING_OWNED, dmesh_of, mesh_of
from tests.rank_pool import RankPool

KINDS = ("tri", "mixed", "tet", "hex", "triangle6")


class Impedance(tm.FacetBilinearAssembler):
    """Not symmetric, with fields, the normal and a complex constant."""

    def forward(self, u, v, gradu, x, n, a, z):
        return z * (1 + a) * u * v + (gradu @ n) * v


class Blocks(tm.FacetBilinearAssembler):
    def forward(self, u, v, x):
        return u * v * torch.stack([torch.stack([x[0], x[1]]), torch.stack([x[1], 2 + x[0]])])


class Stored(tm.ElementAssembler):
    def __post_init__(self, weight: float = 1.0) -> None:
        self.weight = torch.nn.Parameter(torch.tensor(weight, dtype=torch.float64))

    def element_energy(self, a, grada, k, s):
        return s * k * (grada @ grada) + self.weight * a**4


class Weighted(tm.ElementAssembler):
    def forward(self, u, v, c):
        return c * u * v


def field(mesh: tm.Mesh) -> Tensor:
    return torch.cos(2 * mesh.points.detach()[:, 0]) + mesh.points.detach()[:, 1]


def per_point(mesh: tm.Mesh) -> dict[str, tm.PerQuadraturePoint]:
    """Values at the points of all cells, given by coordinates."""
    at = tm.MassElementAssembler.from_mesh(mesh).transformation
    found = {}
    for kind, t in at.items():
        x = torch.einsum("qb,ebd->eqd", t.shape_val, t.element_coords)
        found[kind] = tm.PerQuadraturePoint(torch.exp(x[..., 0]) + x[..., 1])
    return found


def cells_of(mesh: tm.Mesh) -> dict[str, Tensor]:
    return {
        kind: 1 + torch.arange(len(c), dtype=torch.float64) / 9
        for kind, c in mesh.top_cells().items()
    }


def matrices(mesh: tm.Mesh, assemble: Any) -> dict[str, Tensor]:
    low = mesh.points[:, 1] < 0.6
    facet = {"point_data": {"a": field(mesh)}, "scalar_data": {"z": 2.0 - 1.0j}}
    return {
        "impedance": assemble(Impedance, facet),
        "part of the boundary": assemble(Impedance, facet, boundary_mask=low),
        "nowhere": assemble(Impedance, facet, boundary_mask=torch.zeros_like(low)),
        "blocks": assemble(Blocks, {}),
        "per point": assemble(Weighted, {"element_data": {"c": per_point(mesh)}}),
    }


def serial_matrices(mesh: tm.Mesh) -> dict[str, Tensor]:
    return matrices(mesh, lambda cls, call, **kw: cls.from_mesh(mesh, **kw)(**call).to_dense())


def sharded_matrices(device_mesh: DeviceMesh, kind: str, cut: Any) -> dict[str, Tensor]:
    mesh = mesh_of(kind)
    dmesh = dmesh_of(mesh, device_mesh, cut)

    def assemble(cls: Any, call: dict[str, Any], **kwargs: Any) -> Tensor:
        K = tm.distributed_element_assemble(cls, dmesh, call_kwargs=call, **kwargs)
        again = distributed(cls).from_mesh(dmesh, **kwargs)(**call)
        assert isinstance(again, tm.DSparseMatrix)
        assert again.has_same_layout(K)
        assert torch.equal(again.values, K.values)
        return K.to_single().to_dense()

    return matrices(mesh, assemble)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [1, 2, 3])
def test_row_facet_bilinear_on_ranks(ranks: RankPool, n: int, kind: str) -> None:
    """base-api 3 | `FacetBilinearAssembler` through `@distributed`: each facet once.

    features | FacetBilinearAssembler, PerQuadraturePoint, complex forms: distributed.
    """
    expected = serial_matrices(mesh_of(kind))
    for found in ranks(n, sharded_matrices, kind, METHODS[n - 1]):
        for name, K in expected.items():
            assert torch.allclose(found[name], K, rtol=1e-12, atol=1e-13), name


def test_facet_bilinear_where_a_rank_owns_nothing(ranks: RankPool) -> None:
    """base-api 3 | `FacetBilinearAssembler`: a rank without facets or rows takes part."""
    expected = serial_matrices(mesh_of("grid"))
    for found in ranks(2, sharded_matrices, "grid", NOTHING_OWNED):
        for name, K in expected.items():
            assert torch.allclose(found[name], K, rtol=1e-12, atol=1e-13), name


def energies(mesh: tm.Mesh, made: Any, hooke: Any) -> dict[str, Tensor]:
    a = field(mesh).requires_grad_()
    k = {kind: c.requires_grad_() for kind, c in cells_of(mesh).items()}
    s = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    E = made.energy(point_data={"a": a}, element_data={"k": k}, scalar_data={"s": s})
    grads = torch.autograd.grad(E, [a, s, made.weight, *k.values()])
    u = 0.05 * torch.stack([torch.sin(field(mesh) + i) for i in range(mesh.dim)], dim=1)
    return {"E": E.detach(), "W": hooke.energy(u)} | {str(i): g for i, g in enumerate(grads)}


def sharded_energies(device_mesh: DeviceMesh, kind: str) -> dict[str, Tensor]:
    mesh = mesh_of(kind)
    dmesh = dmesh_of(mesh, device_mesh)
    made = distributed(Stored).from_mesh(dmesh, weight=1.5)
    return energies(mesh, made, distributed(NeoHookeanModel).from_mesh(dmesh, E=2.0))


@pytest.mark.parametrize("kind", ["tri", "mixed", "tet"])
@pytest.mark.parametrize("n", [1, 2, 3])
def test_row_energy_on_ranks(ranks: RankPool, n: int, kind: str) -> None:
    """base-api 3 | `energy` through `@distributed`: of the whole mesh, full gradients.

    features | energies: distributed.
    """
    mesh = mesh_of(kind)
    expected = energies(
        mesh, Stored.from_mesh(mesh, weight=1.5), NeoHookeanModel.from_mesh(mesh, E=2.0)
    )
    for found in ranks(n, sharded_energies, kind):
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            assert torch.allclose(found[name], value, rtol=1e-11, atol=1e-14), name


def test_energy_on_parts_of_one_process() -> None:
    """base-api 3 | `energy` through `@distributed` without a job: all parts."""
    mesh = mesh_of("tri")
    dmesh = tm.DistributedMesh(mesh, num_partitions=3)
    found = distributed(tm.MassElementAssembler).from_mesh(dmesh).energy(func=lambda x: x @ x)
    expected = tm.MassElementAssembler.from_mesh(mesh).energy(func=lambda x: x @ x)
    assert float(found) == pytest.approx(float(expected), rel=1e-13)
    with pytest.raises(ValueError, match="batch_size"):
        distributed(tm.MassElementAssembler).from_mesh(dmesh)(batch_size=0)


def condensed(device_mesh: DeviceMesh) -> dict[str, Any]:
    mesh = mesh_of("tri")
    dmesh = dmesh_of(mesh, device_mesh)
    K = tm.distributed_element_assemble(tm.LaplaceElementAssembler, dmesh)
    mask, g, f = mesh.boundary_mask, field(mesh), torch.cos(3 * mesh.points[:, 1])
    cond = tm.Condenser(mask, g)
    before = cond.prolong(cond.restrict(f))
    K_i, f_i = cond(K, f)
    first = cond.condense_rhs(f)
    cond.update_dirichlet(2 * g)
    second = K_i.layout.vectors.gather(cond.condense_rhs(2 * f))
    block = cond.K_ou2in
    counts = torch.tensor([cond.n_dof, cond.n_inner_dof, cond.n_outer_dof, block.nnz])
    return {
        "before": before,
        "same": torch.equal(first, f_i),
        "second": second,
        "counts": counts,
        "edges": int(cond.is_inner_edge.sum()) == K_i.values.numel(),
        "shapes": (block.shape, cond.ou2in_shape, cond.inner_shape),
        "inner_row": torch.equal(cond.inner_row, K_i.row_indices),
        "inner_col": torch.equal(cond.inner_col, K_i.col_indices),
        "layout": cond.layout_signature == K.layout_signature,
    }


@pytest.mark.parametrize("n", [1, 2, 3])
def test_row_condenser_members_on_ranks(ranks: RankPool, n: int) -> None:
    """base-api 5 | `condense_rhs` and the attributes after a call: of this rank's rows."""
    mesh = mesh_of("tri")
    K = tm.LaplaceElementAssembler.from_mesh(mesh)()
    mask, g, f = mesh.boundary_mask, field(mesh), torch.cos(3 * mesh.points[:, 1])
    A = K.to_dense()
    expected = 2 * (f[~mask] - A[~mask][:, mask] @ g[mask])
    found = ranks(n, condensed)
    total = sum(case["counts"] for case in found).tolist()
    n_coupling = int((~mask[K.row] & mask[K.col]).sum())
    assert total == [len(mask), int((~mask).sum()), int(mask.sum()), n_coupling]
    for case in found:
        assert torch.equal(case["before"], torch.where(mask, 0.0, f))
        assert torch.allclose(case["second"], expected, atol=1e-13)
        assert all(case[name] for name in ("same", "edges", "inner_row", "inner_col", "layout"))
        block, ou2in, inner = case["shapes"]
        assert block == ou2in
        assert inner[0] == ou2in[0] == int(case["counts"][1])


@distributed
class Poisson(tm.ElementAssembler):
    def forward(self, gradu, gradv):
        return gradu @ gradv


@distributed
class Source(tm.NodeAssembler):
    def forward(self, v, x):
        return 2 * torch.pi**2 * torch.sin(torch.pi * x[0]) * torch.sin(torch.pi * x[1]) * v


def quick_start(device_mesh: DeviceMesh) -> float:
    mesh = tm.Mesh.gen_rectangle(chara_length=0.1)
    dmesh = tm.DistributedMesh(mesh, device_mesh=device_mesh)
    K = Poisson.from_mesh(dmesh)()
    f = Source.from_mesh(dmesh)()
    condenser = tm.Condenser(mesh.boundary_mask)
    K_, f_ = condenser(K, f)
    u = dmesh.gather(condenser.recover(K_.solve(f_)))
    exact = torch.sin(torch.pi * mesh.points).prod(dim=1)
    return float((u - exact).abs().max())


@pytest.mark.parametrize("n", [1, 2, 3])
def test_quick_start_on_ranks(ranks: RankPool, n: int) -> None:
    """base-api 5 | the quick start with `@distributed`: the serial error on every rank."""
    mesh = tm.Mesh.gen_rectangle(chara_length=0.1)
    K = tm.LaplaceElementAssembler.from_mesh(mesh)()
    load = tm.func_node_assembler(
        lambda x: 2 * torch.pi**2 * torch.sin(torch.pi * x[0]) * torch.sin(torch.pi * x[1])
    )
    condenser = tm.Condenser(mesh.boundary_mask)
    K_, f_ = condenser(K, load.from_mesh(mesh)())
    exact = torch.sin(torch.pi * mesh.points).prod(dim=1)
    expected = float((condenser.recover(K_.solve(f_)) - exact).abs().max())
    assert expected < 0.02
    assert ranks(n, quick_start) == [pytest.approx(expected, rel=1e-5)] * n
