"""Fields of orders between the first and that of the cells, whose nodes are not the cells'."""

import math
from typing import ClassVar

import numpy as np
import pytest
import scipy.sparse as sp
import skfem
import torch
from scipy.spatial import cKDTree
from skfem.helpers import ddot, div, dot, grad, mul
from torch.autograd import gradcheck

import tensormesh as tm
from tensormesh.assemble.lower_order import candidates
from tensormesh.assemble.topology import Topology
from tensormesh.element.cell_type import NAMES, cell_name, cell_type
from tests.assemble.meshes import distorted, filled, mixed
from tests.assemble.scikit_fem import ELEMENTS, basis_of, unknowns
from tests.assemble.stokes import (
    LOAD,
    OSEEN,
    conditions,
    errors,
    fields_of,
    stokes_data,
)
from tests.mesh.test_raised import all_shapes

ORDERS = [(p, q) for p in (2, 3, 4) for q in range(1, p)]


def taylor_hood(dim, order):
    """Forms of the velocity of an order and the pressure of the one below."""
    fields: ClassVar = {"fields": fields_of(dim, order)}
    return [type(cls.__name__, (cls,), dict(fields)) for cls in (OSEEN[dim], LOAD[dim])]


# -- which nodes carry a field -----------------------------------------------------------------


@pytest.mark.parametrize("kind", [kind for kind, (_, order) in NAMES.items() if order > 1])
def test_each_unknown_has_its_candidates_and_no_node_has_two(kind):
    of = cell_type(kind)
    for order in range(1, of.order + 1):
        found = candidates(kind, order)
        assert len(found) == cell_type(cell_name(of.shape, order)).n_nodes
        assert found.any(1).all()
        assert (found.sum(0) <= 1).all()


@pytest.mark.parametrize("kind", ["all shapes", "mixed", "hexahedron", "tetra"])
def test_as_many_nodes_carry_a_field_as_a_mesh_of_its_order_has(kind):
    """Neighbours agree on the nodes of the vertices, edges and faces that they share."""
    make = {"all shapes": all_shapes, "mixed": mixed}.get(kind, lambda: filled(kind))
    for p, q in ORDERS[:1] if kind == "all shapes" else ORDERS:
        carriers = Topology.of(make().raised(p)).carriers(q)
        assert int(carriers.sum()) == make().raised(q).n_points


@pytest.mark.parametrize(("p", "q"), ORDERS)
@pytest.mark.parametrize("kind", ["mixed", "tetra", "wedge"])
def test_a_field_is_a_polynomial_of_its_order(kind, p, q):
    """Unknowns at the places that the layout tells, and values at all nodes."""
    mesh = (mixed() if kind == "mixed" else distorted(kind)).raised(p)

    class Form(tm.MixedNodeAssembler):
        fields: ClassVar = {"u": tm.Field("v", order=p), "p": tm.Field("q", order=q)}

    form = Form.from_mesh(mesh)

    def polynomial(x):
        return (1 + x.sum(1)) ** (q if kind == "tetra" else 1)

    x = form.layout.join({"p": polynomial(form.layout.points(mesh)["p"])})
    assert (form.at_nodes(x)["p"] - polynomial(mesh.points)).abs().max() < 1e-12
    total = form(func=lambda v, q: 0 * v + q)
    measure = tm.ElementAssembler.from_mesh(mesh).energy(
        func=lambda a: a, point_data={"a": polynomial(mesh.points)}
    )
    assert float(total @ x) == pytest.approx(float(measure), rel=1e-12)


# -- Taylor-Hood elements of higher orders -----------------------------------------------------


@pytest.mark.parametrize("p", [3, 4])
def test_taylor_hood_as_scikit_fem(p):
    mesh = distorted("triangle", 3).raised(p)
    form, load = taylor_hood(2, p)
    data = {"scalar_data": {"k": 2.5, "w": torch.tensor([0.7, -0.4], dtype=mesh.dtype)}}
    asm = form.from_mesh(mesh, quadrature_order=2 * p)
    K = asm(**data).to_dense().numpy()
    f = load.from_mesh(mesh, 2 * p)(func=lambda v, q, x: x[0] * v[0] + x[1] ** 2 * q).numpy()

    basis_u = basis_of(mesh, 2 * p, 2)
    basis_p = basis_u.with_element(ELEMENTS["triangle", p - 1]())

    @skfem.BilinearForm
    def a(u, v, w):
        wind = np.array([0.7, -0.4])[:, None, None] + 0 * w.x
        return 2.5 * ddot(grad(u), grad(v)) + dot(mul(grad(u), wind), v)

    @skfem.BilinearForm
    def b(u, q, _):
        return -div(u) * q

    right = skfem.LinearForm(lambda v, w: w.x[0] * v[0]).assemble(basis_u)
    source = skfem.LinearForm(lambda q, w: w.x[1] ** 2 * q).assemble(basis_p)
    B = b.assemble(basis_u, basis_p)
    theirs = sp.bmat([[a.assemble(basis_u), B.T], [B, None]]).toarray()

    carriers = Topology.of(mesh).carriers(p - 1).nonzero().flatten()
    at = asm.layout.points(mesh)["p"][carriers].numpy()
    used = np.unique(basis_p.element_dofs)
    distance, nearest = cKDTree(at).query(basis_p.doflocs.T[used])
    assert distance.max() < 1e-12
    of_u = unknowns(mesh, basis_u, 2)
    used_u = np.unique(basis_u.element_dofs)
    numbers = np.concatenate(
        [of_u[used_u] // 2 * 3 + of_u[used_u] % 2, carriers.numpy()[nearest] * 3 + 2]
    )
    kept = np.concatenate([used_u, len(right) + used])
    assert np.abs(K[np.ix_(numbers, numbers)] - theirs[np.ix_(kept, kept)]).max() < 1e-12
    assert np.abs(f[numbers] - np.concatenate([right, source])[kept]).max() < 1e-13
    rest = np.setdiff1d(np.arange(len(f)), numbers)
    assert not K[rest].any()
    assert not K[:, rest].any()
    assert not f[rest].any()


def solved(mesh, order):
    form, load = taylor_hood(mesh.dim, order)
    asm = form.from_mesh(mesh)
    condenser = tm.Condenser(*conditions(mesh, asm.layout))
    K, b = condenser(asm(**stokes_data(mesh)), load.from_mesh(mesh, quadrature_order=8)())
    return errors(mesh, condenser.recover(K.solve(b)), asm)


@pytest.mark.parametrize(
    ("kind", "order", "sizes"), [("tri", 3, (4, 8)), ("quad", 3, (4, 8)), ("mixed", 4, (2, 4))]
)
def test_taylor_hood_converges_at_its_rates(kind, order, sizes):
    meshes = [tm.Mesh.gen_rectangle(n=(n, n), element_type=kind).raised(order) for n in sizes]
    coarse, fine = (solved(mesh, order) for mesh in meshes)
    for name, loss in {"velocity L2": 0, "velocity H1": 1, "pressure L2": 1}.items():
        assert math.log2(coarse[name] / fine[name]) > order + 1 - loss - 0.3, name


def test_gradients_of_a_solution_agree_with_finite_differences():
    mesh = tm.Mesh.gen_rectangle(n=(2, 2), element_type="quad").raised(3)
    form, load = taylor_hood(2, 3)
    asm, f = form.from_mesh(mesh), load.from_mesh(mesh)()
    condenser = tm.Condenser(*conditions(mesh, asm.layout))

    def loudness(k):
        call = {"point_data": {"w": mesh.points}, "scalar_data": {"k": k}}
        K, b = condenser(asm(**call), f)
        fields = asm.at_nodes(condenser.recover(K.solve(b)))
        return fields["u"].square().sum() + fields["p"].square().sum()

    assert gradcheck(loudness, torch.tensor(0.8, dtype=torch.float64, requires_grad=True))
