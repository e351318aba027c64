import numpy as np
import pytest
import skfem
import torch
from skfem.helpers import dot, grad
from skfem.models.elasticity import lame_parameters, linear_elasticity
from skfem.models.poisson import laplace, mass

from tensormesh.assemble import (
    ElementAssembler,
    FacetAssembler,
    LaplaceElementAssembler,
    LinearElasticityElementAssembler,
    MassElementAssembler,
    NodeAssembler,
)
from tests.assemble.meshes import bulged, filled, raised, sheared
from tests.assemble.scikit_fem import ELEMENTS, basis_of, reordered, unknowns

# On bilinear cells a stiffness is no polynomial, so both must use the same rule: Gauss.
DEGREE = 5


def mesh_of(kind, order):
    """Unequal straight-edged cells; quads and hexahedra are not affine."""
    mesh = sheared(bulged(filled(kind)))
    return mesh if order == 1 else raised(mesh, order)


def equal(ours, theirs):
    return np.abs(ours.detach().to_dense().numpy() - theirs).max() <= 1e-12 * np.abs(theirs).max()


@pytest.mark.parametrize(("kind", "order"), ELEMENTS)
def test_stiffness_and_mass(kind, order):
    mesh = mesh_of(kind, order)
    basis = basis_of(mesh, max(DEGREE, 2 * order))
    K = LaplaceElementAssembler.from_mesh(mesh, quadrature_order=DEGREE)()
    M = MassElementAssembler.from_mesh(mesh, quadrature_order=DEGREE)()
    assert equal(K, reordered(laplace.assemble(basis), mesh, basis))
    assert equal(M, reordered(mass.assemble(basis), mesh, basis))


@pytest.mark.parametrize(("kind", "order"), ELEMENTS)
def test_elasticity(kind, order):
    """features | LinearElasticityElementAssembler: serial."""
    mesh = mesh_of(kind, order)
    basis = basis_of(mesh, max(DEGREE, 2 * order), mesh.dim)
    K = LinearElasticityElementAssembler.from_mesh(mesh, DEGREE, E=210.0, nu=0.3)()
    theirs = linear_elasticity(*lame_parameters(210.0, 0.3)).assemble(basis)
    assert equal(K, reordered(theirs, mesh, basis, mesh.dim))


class AdvectionReaction(ElementAssembler):
    """Not symmetric; with a field, its gradient and the coordinate in it."""

    def forward(self, u, gradu, v, gradv, x, w, gradw):
        return (gradw @ gradu) * v + x[0] * u * gradv[1] + w * u * v + (gradu @ gradv) / (2 + x[1])


@skfem.BilinearForm
def advection_reaction(u, v, w):
    x, field = w.x, w["w"]
    transport = dot(grad(field), grad(u)) * v + x[0] * u * grad(v)[1]
    return transport + field * u * v + dot(grad(u), grad(v)) / (2 + x[1])


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("kind", ["quad", "hexahedron"])  # where both use Gauss points
def test_form_that_is_not_symmetric_with_a_field_in_it(kind, order):
    mesh = mesh_of(kind, order)
    basis = basis_of(mesh, DEGREE)
    w = torch.sin(mesh.points.sum(dim=1))
    theirs = np.zeros(basis.N)
    used = np.unique(basis.element_dofs)
    theirs[used] = w.numpy()[unknowns(mesh, basis)[used]]
    matrix = advection_reaction.assemble(basis, w=basis.interpolate(theirs))
    ours = AdvectionReaction.from_mesh(mesh, quadrature_order=DEGREE)(point_data={"w": w})
    assert equal(ours, reordered(matrix, mesh, basis))


@pytest.mark.parametrize(("kind", "order"), ELEMENTS)
def test_load_and_boundary_load(kind, order):
    mesh = mesh_of(kind, order)
    degree = max(6, 2 * order)

    class Load(NodeAssembler):
        def forward(self, v, gradv, x):
            return x[0] ** 2 * v + x[1] * gradv[0]

    class Flux(FacetAssembler):
        def forward(self, v, x, n):
            return (x[0] ** 2 + n[1]) * v

    basis = basis_of(mesh, degree)
    facets = skfem.FacetBasis(basis.mesh, basis.elem, intorder=degree)
    load = skfem.LinearForm(lambda v, w: w.x[0] ** 2 * v + w.x[1] * grad(v)[0]).assemble(basis)
    flux = skfem.LinearForm(lambda v, w: (w.x[0] ** 2 + w.n[1]) * v).assemble(facets)
    number, used = unknowns(mesh, basis), np.unique(basis.element_dofs)
    for ours, theirs in (
        (Load.from_mesh(mesh, degree)(), load),
        (Flux.from_mesh(mesh, quadrature_order=degree)(), flux),
    ):
        expected = np.zeros(mesh.n_points)
        expected[number[used]] = theirs[used]
        assert np.abs(ours.numpy() - expected).max() <= 1e-12 * np.abs(expected).max()
