"""Derivatives by automatic differentiation against finite differences, on every cell type."""

import pytest
import torch
from torch import nn
from torch.autograd import gradcheck, gradgradcheck

from tensormesh.assemble import (
    ElementAssembler,
    FacetAssembler,
    LaplaceElementAssembler,
    LinearElasticityElementAssembler,
    MassElementAssembler,
    NodeAssembler,
)
from tensormesh.mesh.mesh import Mesh
from tensormesh.operator import Condenser
from tests.assemble.entries import entries
from tests.assemble.meshes import CELL_TYPES, bulged, filled, mixed

f64 = torch.float64


class Matrix(ElementAssembler):
    def __post_init__(self):
        self.a = nn.Parameter(torch.tensor(0.7, dtype=f64))

    def forward(self, u, gradu, v, gradv, x, w, gradw, c, k):
        diffusion = (self.a + w**2 + x[0]) * c * (gradu @ gradv)
        return diffusion + k * (gradw @ gradu) * v + torch.exp(x[0]) * u * v


class Vector(NodeAssembler):
    def __post_init__(self):
        self.a = nn.Parameter(torch.tensor(0.7, dtype=f64))

    def forward(self, v, gradv, x, w, gradw, c, k):
        return (self.a * w**2 + torch.sin(x[0])) * c * v + k * (gradw @ gradv)


class Boundary(FacetAssembler):
    def __post_init__(self):
        self.a = nn.Parameter(torch.tensor(0.7, dtype=f64))

    def forward(self, v, gradv, x, n, w, gradw, c, k):
        return (self.a * w + x @ n) * c * v + k * (gradw @ n) * (gradv @ n)


def few_cells(kind, n_cells=2):
    """Two distorted cells and their points."""
    mesh = bulged(filled(kind))
    middle = len(mesh.cells[kind]) // 2
    cells = mesh.cells[kind][middle : middle + n_cells]
    used, local = cells.unique(return_inverse=True)
    return Mesh.from_arrays(mesh.points[used], {kind: local})


@pytest.mark.parametrize("family", [Matrix, Vector, Boundary])
@pytest.mark.parametrize("kind", CELL_TYPES)
def test_derivatives_of_matrices_and_vectors(kind, family):
    """features | line, triangle, quad, tetra, hexahedron, wedge, pyramid, line3: differentiable.
    features | triangle6, quad9, tetra10, hexahedron27, wedge18, pyramid14: differentiable.
    features | ElementAssembler, NodeAssembler, FacetAssembler, fields at nodes: differentiable.
    features | values per cell, moved points: differentiable.
    """
    mesh = few_cells(kind)
    form = family.from_mesh(mesh)
    torch.manual_seed(0)
    points = mesh.points.clone().requires_grad_()
    w = torch.rand(mesh.n_points, dtype=f64, requires_grad=True)
    c = (1 + torch.rand(mesh.n_elements, dtype=f64)).requires_grad_()
    k = torch.tensor(0.3, dtype=f64, requires_grad=True)

    def values(points, w, c, k):
        data = {"point_data": {"w": w}, "element_data": {"c": c}, "scalar_data": {"k": k}}
        return entries(form(points, **data))

    assert gradcheck(values, (points, w, c, k), fast_mode=True)


@pytest.mark.parametrize("family", [Matrix, Vector, Boundary])
def test_derivatives_with_respect_to_parameters(family):
    mesh = few_cells("quad")
    form = family.from_mesh(mesh)
    data = {
        "point_data": {"w": mesh.points[:, 0]},
        "element_data": {"c": torch.ones(mesh.n_elements, dtype=f64)},
        "scalar_data": {"k": 0.5},
    }
    weights = torch.rand(entries(form(**data)).shape, dtype=f64)

    def loss():
        return entries(form(**data)) @ weights

    loss().backward()
    with torch.no_grad():
        form.a += 1.0
        after = loss()
        form.a -= 1.0
        before = loss()  # the forms are affine in a
    assert form.a.grad.item() == pytest.approx(float(after - before), rel=1e-10)


@pytest.mark.parametrize("kind", ["triangle", "quad9", "tetra10", "pyramid"])
def test_second_derivatives_with_respect_to_points_and_fields(kind):
    mesh = few_cells(kind, 1)
    form = MassElementAssembler.from_mesh(mesh)
    w = torch.rand(mesh.n_points, dtype=f64, requires_grad=True)

    def values(points, w):
        K = form(points, func=lambda gradu, gradv, w: w**2 * (gradu @ gradv), point_data={"w": w})
        return (K.values**2).sum()

    points = mesh.points.clone().requires_grad_()
    assert gradgradcheck(values, (points, w), fast_mode=True)


@pytest.mark.parametrize("kind", CELL_TYPES)
def test_volume_grows_by_the_divergence_of_the_motion(kind):
    """features | MassElementAssembler: differentiable."""
    # d/dt of the volume under points + t m(points) is int div m; here m = x, div m = D.
    mesh = bulged(filled(kind))
    points = mesh.points.clone().requires_grad_()
    volume = MassElementAssembler.from_mesh(mesh)(points).values.sum()
    (grad,) = torch.autograd.grad(volume, points)
    assert float((grad * mesh.points).sum()) == pytest.approx(mesh.dim, rel=1e-12)
    inner = ~mesh.topological_boundary_mask()
    assert grad[inner].abs().max() < 1e-13  # inner points do not change it


def test_values_per_cell_of_several_types():
    """features | several cell types in a mesh: differentiable."""
    mesh = mixed()
    form = MassElementAssembler.from_mesh(mesh)
    c = {k: torch.rand(len(e), dtype=f64).requires_grad_() for k, e in mesh.top_cells().items()}

    def values(*c):
        data = {"c": dict(zip(mesh.top_cells(), c, strict=True))}
        return form(func=lambda u, v, c: c**2 * u * v, element_data=data).values

    assert gradcheck(values, tuple(c.values()), fast_mode=True)


def test_complex_fields():
    """features | complex forms: differentiable."""
    mesh = few_cells("triangle")
    form = MassElementAssembler.from_mesh(mesh)
    w = torch.rand(mesh.n_points, dtype=torch.complex128, requires_grad=True)

    def values(w):
        return form(func=lambda u, v, w: w**2 * u * v, point_data={"w": w}).values

    assert gradcheck(values, (w,))


def test_elastic_constants():
    """features | LinearElasticityElementAssembler, parameters of a form: differentiable."""
    mesh = few_cells("tetra")

    def values(E, nu):
        return LinearElasticityElementAssembler.from_mesh(mesh, E=E, nu=nu)().values

    E, nu = (torch.tensor(c, dtype=f64, requires_grad=True) for c in (2.0, 0.3))
    assert gradcheck(values, (E, nu))


@pytest.mark.parametrize("kind", ["triangle", "quad", "tetra"])
def test_a_solved_problem_end_to_end(kind):
    """features | LaplaceElementAssembler: differentiable."""
    mesh = bulged(filled(kind))
    form = LaplaceElementAssembler.from_mesh(mesh)
    mask = mesh.topological_boundary_mask()

    def solution(points, w, f, g):
        K = form(points, func=lambda gradu, gradv, w: w * (gradu @ gradv), point_data={"w": w})
        condenser = Condenser(mask, g)
        K_i, f_i = condenser(K, f)
        return condenser.recover(K_i.solve(f_i))

    torch.manual_seed(1)
    w = (1 + torch.rand(mesh.n_points, dtype=f64)).requires_grad_()
    f, g = (torch.rand(mesh.n_points, dtype=f64, requires_grad=True) for _ in range(2))
    points = mesh.points.clone().requires_grad_()
    assert gradcheck(solution, (points, w, f, g), fast_mode=True)
    assert gradgradcheck(lambda *a: solution(*a).sum(), (points, w, f, g), fast_mode=True)
