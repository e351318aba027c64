"""Forms of several fields on facets: as of one field, as scikit-fem's, and as tractions."""

import math
from typing import ClassVar

import numpy as np
import pytest
import scipy.sparse as sp
import skfem
import torch
from skfem.helpers import dot, grad, mul
from torch.autograd import gradcheck

import tensormesh as tm
from tests.assemble.meshes import filled, mixed, sheared
from tests.assemble.scikit_fem import ELEMENTS, basis_of, unknowns
from tests.assemble.stokes import (
    LOAD,
    OSEEN,
    Traction2D,
    errors,
    held_but_on_the_right,
    stokes_data,
)

VECTOR = {"fields": {"u": tm.Field("v", components=2, order=2)}}


class Nitsche(tm.MixedFacetBilinearAssembler):
    """Of the velocity through the boundary: traction, its transpose, and a penalty."""

    fields: ClassVar = {"u": tm.Field("v", components=2, order=2), "p": tm.Field("q")}

    def forward(self, u, gradu, v, gradv, p, q, n, c):
        traction = (gradu @ n - p * n) @ v
        return -traction - (gradv @ n - q * n) @ u + c * (u @ n) * (v @ n)


class Inflow(tm.MixedFacetAssembler):
    fields: ClassVar = Nitsche.fields

    def forward(self, v, gradv, q, x, n):
        return x[0] * v[1] + (gradv @ n) @ x - (q * x[1]) * (n @ x)


@pytest.mark.parametrize("kind", ["triangle", "quad"])
def test_matrix_and_vector_as_scikit_fem(kind):
    """features | MixedFacetAssembler, MixedFacetBilinearAssembler: serial."""
    mesh = filled(kind, 3).raised(2)
    low = mesh.points[:, 1] < 0.5
    K = Nitsche.from_mesh(mesh, low, 6)(scalar_data={"c": 3.0}).to_dense().numpy()
    f = Inflow.from_mesh(mesh, low, 6)().numpy()

    cells = basis_of(mesh, 6, 2)
    sides = cells.mesh.facets_satisfying(lambda x: x[1] < 0.5, boundaries_only=True)
    # A facet counts where all its nodes do.
    ends = cells.mesh.p[1, cells.mesh.facets[:, sides]]
    sides = sides[(ends < 0.5).all(0)]
    of_u = skfem.FacetBasis(cells.mesh, cells.elem, facets=sides, intorder=6)
    of_p = of_u.with_element(ELEMENTS[kind, 1]())

    @skfem.BilinearForm
    def a(u, v, w):
        terms = dot(mul(grad(u), w.n), v) + dot(mul(grad(v), w.n), u)
        return -terms + 3.0 * dot(u, w.n) * dot(v, w.n)

    b = skfem.BilinearForm(lambda p, v, w: p * dot(v, w.n)).assemble(of_p, of_u)
    right = skfem.LinearForm(lambda v, w: w.x[0] * v[1] + dot(mul(grad(v), w.n), w.x))
    source = skfem.LinearForm(lambda q, w: -q * w.x[1] * dot(w.x, w.n))
    theirs = sp.bmat([[a.assemble(of_u), b], [b.T, None]]).toarray()
    loads = np.concatenate([right.assemble(of_u), source.assemble(of_p)])

    number = unknowns(mesh, cells, 2)
    number_p = unknowns(mesh, cells.with_element(ELEMENTS[kind, 1]()))
    numbers = np.concatenate([number // 2 * 3 + number % 2, number_p * 3 + 2])
    dense, whole = np.zeros_like(K), np.zeros_like(f)
    np.add.at(dense, np.ix_(numbers, numbers), theirs)
    np.add.at(whole, numbers, loads)
    assert np.abs(K).max() > 1
    assert np.abs(K - dense).max() < 1e-12
    assert np.abs(f - whole).max() < 1e-13


def test_one_vector_field_is_what_facet_assemblers_have():
    """Two cell types; coefficients that vary, the normal, and a field."""
    mesh = mixed().raised(2)

    class Bilinear(tm.MixedFacetBilinearAssembler):
        fields: ClassVar = VECTOR["fields"]

        def forward(self, gradu, v, n, x, a):
            return (1 + x[0]) * a * (gradu @ n) @ v

    class Linear(tm.MixedFacetAssembler):
        fields: ClassVar = VECTOR["fields"]

        def forward(self, v, gradv, n, x, a):
            return a * n @ v + x @ gradv @ n

    data = {"point_data": {"a": mesh.points[:, 0] + 2}}
    K = Bilinear.from_mesh(mesh)(**data)
    f = Linear.from_mesh(mesh)(**data)
    one = tm.FacetBilinearAssembler.from_mesh(mesh)(
        func=lambda gradu, v, n, x, a: (1 + x[0]) * a * (gradu @ n) * v * torch.eye(2).to(x), **data
    )
    whole = tm.FacetAssembler.from_mesh(mesh)(
        func=lambda v, gradv, n, x, a: a * torch.outer(v, n) + torch.outer(gradv @ n, x), **data
    )
    assert torch.equal(K.row, one.row)
    assert (K.values - one.values).abs().max() < 1e-13
    assert (f - whole).abs().max() < 1e-13


@pytest.mark.parametrize("kind", ["tri", "quad", "mixed"])
def test_stokes_with_a_traction_converges_at_its_rates(kind):
    """The traction fixes the pressure, too: no value of it is prescribed."""
    found = []
    for n in (8, 16):
        mesh = tm.Mesh.gen_rectangle(n=(n, n), element_type=kind).raised(2)
        asm = OSEEN[2].from_mesh(mesh)
        f = LOAD[2].from_mesh(mesh, quadrature_order=6)()
        f = f + Traction2D.from_mesh(mesh, "is_right_boundary", quadrature_order=6)()
        condenser = tm.Condenser(*held_but_on_the_right(mesh, asm.layout))
        K, b = condenser(asm(**stokes_data(mesh)), f)
        found.append(errors(mesh, condenser.recover(K.solve(b)), asm))
    for name, order in {"velocity L2": 2.9, "velocity H1": 1.9, "pressure L2": 1.9}.items():
        assert math.log2(found[0][name] / found[1][name]) >= order, name


def test_gradients_agree_with_finite_differences():
    """features | MixedFacetAssembler, MixedFacetBilinearAssembler: differentiable."""
    mesh = filled("triangle", 1).raised(2)
    K, f = Nitsche.from_mesh(mesh), Inflow.from_mesh(mesh)
    points = mesh.points.clone().requires_grad_()
    c = torch.tensor(1.3, dtype=torch.float64, requires_grad=True)
    x = torch.rand(3 * mesh.n_points, dtype=torch.float64)
    assert gradcheck(lambda c, p: x.flip(0) @ (K(p, scalar_data={"c": c}) @ x), (c, points))
    assert gradcheck(lambda p: f(p) @ x, points)


def test_no_facets_and_what_is_refused():
    mesh = sheared(filled("tetra", 1)).raised(2)

    class Flux(tm.MixedFacetAssembler):
        fields: ClassVar = {"u": tm.Field("v", components=3, order=2), "p": tm.Field("q")}

        def forward(self, v, n):
            return v @ n

    nowhere = torch.zeros(mesh.n_points, dtype=torch.bool)
    assert not Flux.from_mesh(mesh, nowhere)().any()
    with pytest.raises(tm.FormError, match="is not linear"):
        Flux.from_mesh(mesh)(func=lambda v, n: (v @ n) ** 2)
    with pytest.raises(tm.FormError, match="the form needs one of v, gradv, q, gradq"):
        Flux.from_mesh(mesh)(func=lambda x: x[0])
    with pytest.raises(ValueError, match=r"mesh.raised\(2\)"):
        Flux.from_mesh(filled("tetra", 1))
