"""Every built-in form and every cell type on ranks: values and gradients of one process."""

from typing import Any

import torch
from torch import Tensor

import tensormesh as tm
from tensormesh.assemble import NeoHookeanModel
from tensormesh.distributed import distributed
from tensormesh.distributed.device_mesh import DeviceMesh
from tests.assemble.meshes import CELL_TYPES, HIGH_ORDER, filled
from tests.distributed.cases import dmesh_of, mesh_of
from tests.rank_pool import RankPool

ALL = CELL_TYPES + HIGH_ORDER


def weighted(x: Any, add: Any) -> Tensor:
    """A number made of a matrix or of a vector."""
    if isinstance(x, Tensor):
        return x if x.dim() == 0 else add(x**3)
    return add((x @ torch.ones(x.shape[1] if add is torch.sum else x.layout.n_owned).double()) ** 2)


def forms(mesh: tm.Mesh, on: Any, add: Any) -> dict[str, list[Tensor]]:
    """Numbers of each form, and their derivatives by what it is given."""
    x = mesh.points
    c = (1 + x[:, 0]).requires_grad_()
    A = torch.stack([1 + x[:, 0], x[:, 1], 0 * x[:, 0], 2 + x[:, 1]], 1).view(-1, 2, 2)
    A = A.requires_grad_()
    u = (0.1 * torch.sin(x)).requires_grad_()
    points = x.clone().requires_grad_()
    E = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    made = {
        "laplace": (lambda: on(tm.LaplaceElementAssembler)(points), points),
        "mass": (lambda: on(tm.MassElementAssembler)(points), points),
        "scaled mass": (lambda: on(tm.ScaledMassElementAssembler)(point_data={"c": c}), c),
        "anisotropic": (
            lambda: on(tm.AnisotropicLaplaceElementAssembler)(point_data={"A": A}),
            A,
        ),
        "elasticity": (lambda: on(tm.LinearElasticityElementAssembler, E=E, nu=0.3)(), E),
        "neo-Hooke": (lambda: on(NeoHookeanModel, E=2.0).tangent(u), u),
        "energy": (lambda: on(NeoHookeanModel, E=2.0).energy(u), u),
        "const": (lambda: on(tm.const_node_assembler(2.0))(points), points),
        "func": (lambda: on(tm.func_node_assembler(lambda x: x[0] ** 2))(points), points),
    }
    found = {}
    for name, (form, given) in made.items():
        value = weighted(form(), add)
        found[name] = [value.detach(), *torch.autograd.grad(value, given)]
    return found


def forms_on_ranks(device_mesh: DeviceMesh) -> dict[str, list[Tensor]]:
    mesh = mesh_of("tri")
    dmesh = dmesh_of(mesh, device_mesh)
    return forms(mesh, lambda cls, **kw: distributed(cls).from_mesh(dmesh, **kw), dmesh.sum)


def test_built_in_forms(ranks: RankPool) -> None:
    """features | LaplaceElementAssembler, MassElementAssembler: distributed, differentiable.
    features | ScaledMassElementAssembler, AnisotropicLaplaceElementAssembler: distributed.
    features | ScaledMassElementAssembler, AnisotropicLaplaceElementAssembler: differentiable.
    features | LinearElasticityElementAssembler, NeoHookeanModel: distributed, differentiable.
    features | const_node_assembler, func_node_assembler: distributed, differentiable.
    """
    mesh = mesh_of("tri")
    expected = forms(mesh, lambda cls, **kw: cls.from_mesh(mesh, **kw), torch.sum)
    for found in ranks(2, forms_on_ranks):
        for name, numbers in expected.items():
            for x, right in zip(found[name], numbers, strict=True):
                torch.testing.assert_close(x, right, rtol=1e-10, atol=1e-12, msg=name)


def mass(mesh: tm.Mesh, on: Any, add: Any) -> list[Tensor]:
    points = mesh.points.clone().requires_grad_()
    value = weighted(on(tm.MassElementAssembler)(points), add)
    return [value.detach(), *torch.autograd.grad(value, points)]


def at_least_two(kind: str) -> tm.Mesh:
    return filled(kind, 2 if kind.startswith("hexahedron") else 1)


def cells_on_ranks(device_mesh: DeviceMesh) -> dict[str, list[Tensor]]:
    found = {}
    for kind in ALL:
        mesh = at_least_two(kind)
        dmesh = tm.DistributedMesh(mesh, device_mesh=device_mesh)

        def on(cls: Any, dmesh: tm.DistributedMesh = dmesh) -> Any:
            return distributed(cls).from_mesh(dmesh)

        found[kind] = mass(mesh, on, dmesh.sum)
    return found


def test_cell_types(ranks: RankPool) -> None:
    """Masses of them.

    features | line, triangle, quad, tetra, hexahedron, wedge, pyramid: distributed, differentiable.
    features | line3, triangle6, quad9, tetra10, hexahedron27, wedge18: distributed, differentiable.
    features | pyramid14, line4, line5, triangle10, triangle15, quad16: distributed, differentiable.
    features | quad25, tetra20, tetra35, hexahedron64, hexahedron125: distributed, differentiable.
    features | wedge40, wedge75: distributed, differentiable.
    """
    by_rank = ranks(2, cells_on_ranks)
    for kind in ALL:
        mesh = at_least_two(kind)
        expected = mass(mesh, lambda cls, mesh=mesh: cls.from_mesh(mesh), torch.sum)
        for found in by_rank:
            for x, right in zip(found[kind], expected, strict=True):
                torch.testing.assert_close(x, right, rtol=1e-10, atol=1e-13, msg=kind)
