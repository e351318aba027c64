"""Several fields: Taylor-Hood elements against scikit-fem and a known solution, and their laws."""

import math
from typing import ClassVar

import numpy as np
import pytest
import scipy.sparse as sp
import skfem
import torch
from skfem.helpers import ddot, div, dot, grad, mul
from torch.autograd import gradcheck

import tensormesh as tm
from tests.assemble.meshes import distorted, filled, mixed, sheared
from tests.assemble.scikit_fem import ELEMENTS, basis_of, unknowns
from tests.assemble.stokes import (
    LOAD,
    OSEEN,
    Load2D,
    Oseen2D,
    at_vertices,
    conditions,
    errors,
    fields_of,
    stokes_data,
    velocity,
)
from tests.mesh.test_raised import all_shapes

WIND = [0.7, -0.4, 0.9]


# -- scikit-fem --------------------------------------------------------------------------------


def scikit_fem_system(mesh, degree):
    """Matrix and load by scikit-fem, blocks of u and p, and our number of each unknown."""
    dim = mesh.dim
    basis_u = basis_of(mesh, degree, dim)
    ((kind, _),) = mesh.top_cells().items()
    shape = {"triangle6": "triangle", "quad9": "quad", "tetra10": "tetra"}[kind]
    basis_p = basis_u.with_element(ELEMENTS[shape, 1]())
    wind = np.array(WIND[:dim])[:, None, None]

    @skfem.BilinearForm
    def a(u, v, w):
        return 2.5 * ddot(grad(u), grad(v)) + dot(mul(grad(u), wind + 0 * w.x), v)

    @skfem.BilinearForm
    def b(u, q, _):
        return -div(u) * q

    @skfem.LinearForm
    def load(v, w):
        return w.x[0] * v[0] + w.x[1] ** 2 * v[1]

    @skfem.LinearForm
    def source(q, w):
        return w.x[0] * q

    B = b.assemble(basis_u, basis_p)
    K = sp.bmat([[a.assemble(basis_u), B.T], [B, None]]).tocsr()
    f = np.concatenate([load.assemble(basis_u), source.assemble(basis_p)])
    h, of_u, node_p = dim + 1, unknowns(mesh, basis_u, dim), unknowns(mesh, basis_p)
    return K, f, np.concatenate([of_u // dim * h + of_u % dim, node_p * h + dim])


@pytest.mark.parametrize("kind", ["triangle", "quad", "tetra"])
def test_taylor_hood_as_scikit_fem(kind):
    """Matrix, load and solution of an Oseen problem with pressure and velocity prescribed.

    features | MixedElementAssembler, Field: serial.
    """
    mesh = (sheared(filled(kind)) if kind == "tetra" else distorted(kind, 3)).raised(2)
    wind = torch.tensor(WIND[: mesh.dim], dtype=mesh.dtype)
    asm = OSEEN[mesh.dim].from_mesh(mesh, quadrature_order=6)
    K = asm(scalar_data={"k": 2.5, "w": wind})

    def load(v, q, x):
        return x[0] * v[0] + x[1] ** 2 * v[1] + x[0] * q

    f = LOAD[mesh.dim].from_mesh(mesh, quadrature_order=6)(func=load)
    theirs, f_theirs, number = scikit_fem_system(mesh, 6)
    dense = np.zeros(K.shape)
    dense[np.ix_(number, number)] = theirs.toarray()
    whole = np.zeros(len(f))
    whole[number] = f_theirs
    assert np.abs(K.to_dense().numpy() - dense).max() < 1e-12 * np.abs(dense).max()
    assert np.abs(f.numpy() - whole).max() < 1e-13

    mask, values = conditions(mesh, asm.layout)
    condenser = tm.Condenser(mask, values)
    K_i, f_i = condenser(K, f)
    x = condenser.recover(K_i.solve(f_i))
    prescribed, start = mask.numpy()[number], values.numpy()[number]
    solution = skfem.solve(*skfem.condense(theirs, f_theirs, x=start, D=prescribed.nonzero()[0]))
    assert np.abs(x.numpy()[number] - solution).max() < 1e-12 * np.abs(solution).max()


# -- convergence -------------------------------------------------------------------------------

RATES = {"velocity L2": 2.9, "velocity H1": 1.9, "pressure L2": 1.9}


def solved(mesh):
    asm = OSEEN[mesh.dim].from_mesh(mesh)
    f = LOAD[mesh.dim].from_mesh(mesh, quadrature_order=6)()
    condenser = tm.Condenser(*conditions(mesh, asm.layout))
    K, b = condenser(asm(**stokes_data(mesh)), f)
    n_inside = int((~mesh.boundary_mask).sum())
    assert condenser.n_inner_dof == mesh.dim * n_inside + int(at_vertices(mesh).sum()) - 1
    return errors(mesh, condenser.recover(K.solve(b)), asm)


@pytest.mark.parametrize(
    ("kind", "sizes"), [("tri", (8, 16)), ("quad", (8, 16)), ("mixed", (8, 16)), ("tet", (3, 6))]
)
def test_taylor_hood_converges_at_its_rates(kind, sizes):
    """features | MixedNodeAssembler: serial."""
    gen = tm.Mesh.gen_cube if kind == "tet" else tm.Mesh.gen_rectangle
    dim = 3 if kind == "tet" else 2
    coarse, fine = (solved(gen(n=(n,) * dim, element_type=kind).raised(2)) for n in sizes)
    rates = {name: math.log2(coarse[name] / fine[name]) for name in RATES}
    for name, expected in RATES.items():
        assert rates[name] >= expected - (0.1 if kind == "tet" else 0.0), rates


# -- laws --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["triangle", "quad", "mixed", "all shapes", "curved"])
def test_patch_of_a_quadratic_velocity_and_a_linear_pressure(kind):
    """Inside, the matrix times the interpolated solution is the load, on cells of all shapes."""
    if kind == "all shapes":
        mesh = all_shapes(2).raised(2)
    elif kind == "curved":  # the velocity is linear there: nothing else is in the space
        mesh = distorted("triangle6", 3)
    else:
        mesh = (mixed() if kind == "mixed" else distorted(kind, 3)).raised(2)
    asm, load = OSEEN[mesh.dim].from_mesh(mesh, 6), LOAD[mesh.dim].from_mesh(mesh, 6)
    x, square = mesh.points, float(kind != "curved")
    slope = torch.tensor([0.3, -1.2, 0.5], dtype=x.dtype)[: mesh.dim]
    u = x.roll(1, 1) + square * x.roll(1, 1) ** 2  # without divergence
    p = asm.layout.join({"u": u, "p": (x @ slope) * (square * at_vertices(mesh))})
    f = load(func=lambda v: square * (slope - 2) @ v)
    rest = asm.layout.split(asm(**stokes_data(mesh)) @ p - f)
    inside = ~mesh.topological_boundary_mask()
    assert rest["u"][inside].numel()
    assert rest["u"][inside].abs().max() < 1e-12
    assert rest["p"].abs().max() < 1e-12


def test_one_vector_field_is_what_an_element_assembler_has():
    """Third order, two cell types, coefficients that vary: the blocks of elasticity."""
    mesh = mixed().raised(3)

    class Elasticity(tm.MixedElementAssembler):
        fields: ClassVar = {"u": tm.Field("v", components=2, order=3)}

        def forward(self, gradu, gradv, x):
            e = (gradu + gradu.T) / 2
            return (1 + x[0]) * (gradu.trace() * gradv.trace() + 2 * (e * gradv).sum())

    def blocks(gradu, gradv, x):
        identity = torch.eye(2, dtype=x.dtype)
        shear = (gradu @ gradv) * identity + torch.outer(gradu, gradv)
        return (1 + x[0]) * (torch.outer(gradv, gradu) + shear)

    K = Elasticity.from_mesh(mesh)()
    E = tm.ElementAssembler.from_mesh(mesh)(func=blocks)
    assert torch.equal(K.row, E.row)
    assert torch.equal(K.col, E.col)
    assert (K.values - E.values).abs().max() < 1e-12 * E.values.abs().max()


def test_blocks_of_cells_do_not_matter():
    mesh = filled("triangle", 3).raised(2)
    asm = Oseen2D.from_mesh(mesh)
    data = {"point_data": {"w": mesh.points}, "scalar_data": {"k": 2.0}}
    expected, found = asm(**data), asm(**data, batch_size=1)
    assert (expected.values - found.values).abs().max() < 1e-14


def test_gradients_agree_with_finite_differences():
    """features | MixedElementAssembler: differentiable."""
    mesh = filled("triangle", 1).raised(2)
    asm, load = Oseen2D.from_mesh(mesh), Load2D.from_mesh(mesh)
    torch.manual_seed(0)
    k = torch.tensor(1.7, dtype=torch.float64, requires_grad=True)
    w = torch.rand_like(mesh.points).requires_grad_()
    points = mesh.points.clone().requires_grad_()
    x = torch.rand(asm.layout.h * mesh.n_points, dtype=torch.float64)

    def bilinear(k, w, points):
        K = asm(points, point_data={"w": w}, scalar_data={"k": k})
        return x.flip(0) @ (K @ x)

    def linear(k, w):
        data = {"point_data": {"w": w}, "scalar_data": {"k": k}}
        return load(func=lambda v, q, k, w: k**2 * w @ v + q, **data) @ x

    assert gradcheck(bilinear, (k, w, points))
    assert gradcheck(linear, (k, w))


def test_gradient_of_a_solution_agrees_with_finite_differences():
    mesh = tm.Mesh.gen_rectangle(n=(2, 2)).raised(2)
    asm = Oseen2D.from_mesh(mesh)
    condenser = tm.Condenser(*conditions(mesh, asm.layout))
    f = Load2D.from_mesh(mesh)()
    w = torch.zeros_like(mesh.points)

    def drag(k):
        K, b = condenser(asm(point_data={"w": w}, scalar_data={"k": k}), f)
        return condenser.recover(K.solve(b)).square().sum()

    assert gradcheck(drag, (torch.tensor(0.8, dtype=torch.float64, requires_grad=True),))


# -- vectors -----------------------------------------------------------------------------------


def test_split_is_the_inverse_of_join():
    """features | BlockLayout: serial."""
    layout = tm.BlockLayout(fields_of(2))
    u, p = torch.rand(5, 2), torch.rand(5)
    x = layout.join({"u": u, "p": p})
    assert torch.equal(x.view(5, 3)[:, 2], p)
    assert torch.equal(layout.split(x)["u"], u)
    assert torch.equal(layout.split(x)["p"], p)
    mask = layout.split(layout.join({"p": p > 0.5}))
    assert mask["u"].dtype == torch.bool
    assert not mask["u"].any()


@pytest.mark.parametrize("kind", ["triangle", "all shapes"])
def test_a_linear_pressure_is_linear_at_all_nodes(kind):
    mesh = (all_shapes() if kind == "all shapes" else distorted(kind)).raised(2)
    asm = OSEEN[mesh.dim].from_mesh(mesh)
    p = mesh.points.sum(dim=1)
    x = asm.layout.join({"u": velocity(mesh.points), "p": p * at_vertices(mesh)})
    found = asm.at_nodes(x)
    assert (found["p"] - p).abs().max() < 1e-13
    assert torch.equal(found["u"], velocity(mesh.points))


# -- what is refused ---------------------------------------------------------------------------


def test_a_field_of_a_higher_order_is_refused():
    with pytest.raises(ValueError, match=r"fields\['u'\] has order 2 .* mesh.raised\(2\)"):
        Oseen2D.from_mesh(filled("triangle"))


@pytest.mark.parametrize(
    ("form", "message"),
    [
        (lambda gradu, gradv, p: (gradu * gradv).sum() * p, "is not linear"),
        (lambda u, v, q: (u @ v) + 1 + 0 * q, "is not linear"),
        (lambda u, v, k: u * v, r"returned shape \(2,\) at a point, expected a number"),
        (lambda v, q, k: v[0] * q, "needs one of u, gradu, p, gradp"),
        (lambda u, r: u[0] * r, "nothing is called 'r'; the form can name u, gradu, v, gradv, p"),
    ],
)
def test_forms_that_are_none_are_refused(form, message):
    with pytest.raises(ValueError, match=message):
        Oseen2D.from_mesh(filled("triangle").raised(2))(func=form, scalar_data={"k": 1.0})


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "fields is empty"),
        ({"u": tm.Field("v"), "p": tm.Field("v")}, r"\['gradv', 'v'\] would mean two things"),
        ({"u": tm.Field("gradu")}, r"\['gradu'\] would mean two things"),
        ({"u": tm.Field("v", components=0)}, "components and order start at 1"),
    ],
)
def test_fields_that_cannot_be_told_apart_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        tm.BlockLayout(fields)


def test_vectors_of_another_length_are_refused():
    layout = tm.BlockLayout(fields_of(2))
    with pytest.raises(ValueError, match=r"expected \[n \* 3\]"):
        layout.split(torch.zeros(7))
    with pytest.raises(ValueError, match=r"fields \['r'\]: name some of \['u', 'p'\]"):
        layout.join({"r": torch.zeros(7)})
    with pytest.raises(ValueError, match=r"'p' has shape \(6,\); expected \[7, 1\]"):
        layout.join({"u": torch.zeros(7, 2), "p": torch.zeros(6)})
    mesh = filled("triangle").raised(2)
    with pytest.raises(ValueError, match="the mesh has 35 nodes"):
        Oseen2D.from_mesh(mesh).at_nodes(torch.zeros(30))


# -- dtypes ------------------------------------------------------------------------------------


def test_complex_coefficients_and_single_precision():
    mesh = distorted("triangle").raised(2)
    wind = torch.zeros(2)
    asm = Oseen2D.from_mesh(mesh)
    K, rotated = (asm(scalar_data={"k": k, "w": wind.double()}) for k in (2.0, 2j))
    assert rotated.values.is_complex()
    assert (rotated.values.real + rotated.values.imag - K.values).abs().max() < 1e-13
    single = asm.float()(scalar_data={"k": 2.0, "w": wind})
    assert single.dtype == torch.float32
    assert (single.values - K.values).abs().max() < 1e-5 * K.values.abs().max()
