"""Fields of any order on first-order meshes: integrals, polynomials, geometry of the vertices."""

import math
from itertools import product

import pytest
import torch

import tensormesh as tm
from tensormesh.assemble import LaplaceElementAssembler, MassElementAssembler
from tensormesh.mesh import Mesh
from tensormesh.mesh.generators import gen_cube, gen_rectangle
from tensormesh.operator import Condenser
from tests.assemble.meshes import bulged, distorted, filled, only_top_cells, sheared
from tests.assemble.scikit_fem import ELEMENTS, basis_of, reordered
from tests.assemble.test_against_scikit_fem import laplace, mass
from tests.assemble.test_high_order import exact_matrices
from tests.mesh.test_raised import CASES, all_shapes

SOLIDS = ("hexahedron", "wedge", "tetra")


def domain(kind):
    """Unit box of unequal cells; pyramids, whose basis is rational, stay affine."""
    return filled(kind) if kind == "pyramid" else bulged(filled(kind))


def monomials(dim, degree):
    return [p for p in product(range(degree + 1), repeat=dim) if sum(p) <= degree]


@pytest.mark.parametrize(("kind", "order"), CASES)
def test_polynomials_of_the_order_are_integrated_exactly(kind, order):
    """Order on its own | interpolated monomials: their integrals and products are exact."""
    mesh = domain(kind).raised(order)
    M = MassElementAssembler.from_mesh(mesh, quadrature_order=2 * order + 2)()
    x = mesh.points
    powers = torch.tensor(monomials(mesh.dim, order), dtype=x.dtype)
    u = (x.unsqueeze(1) ** powers).prod(dim=2)
    found = u.T @ (M @ u)
    exact = (1 / (powers.unsqueeze(1) + powers + 1)).prod(dim=2)
    assert (found - exact).abs().max() < 1e-13


@pytest.mark.parametrize("order", [2, 3])
def test_cells_of_all_shapes_together(order):
    mesh = all_shapes(1, (*SOLIDS, "pyramid") if order == 2 else SOLIDS).raised(order)
    volume = 1 + 0.35 + 0.07 + (0.2 if order == 2 else 0)
    rows = [[0.0, 1, 0], [0.6, 0.5, -0.5], [0.5, 0.5, 0.2]]
    tip = torch.tensor(rows, dtype=torch.float64)
    M = MassElementAssembler.from_mesh(mesh)()
    total = volume + float(torch.linalg.det(tip).abs()) / 6
    assert float(M.values.sum()) == pytest.approx(total, rel=1e-13)


@pytest.mark.parametrize(("kind", "order"), CASES)
def test_patch_of_polynomials_of_the_order(kind, order):
    """-div grad u = f for a polynomial u: inside, stiffness times u is the load of f."""
    mesh = (sheared(filled(kind)) if kind == "pyramid" else distorted(kind)).raised(order)
    x = mesh.points
    direction = torch.tensor([0.7, -0.4, 0.9], dtype=x.dtype)[: mesh.dim]
    factor = -order * (order - 1) * float(direction @ direction)

    def source(v, x):
        y = 0.3 + x @ direction
        return factor * y ** max(order - 2, 0) * v

    degree = 2 * order + 3
    u = (0.3 + x @ direction) ** order
    K = LaplaceElementAssembler.from_mesh(mesh, quadrature_order=degree)()
    f = tm.func_node_assembler(lambda x: source(1.0, x)).from_mesh(mesh, degree)()
    rest = (K @ u - f)[~mesh.topological_boundary_mask()]
    assert rest.abs().max() < 1e-12 * (K.values.abs().max() * u.abs().max())


@pytest.mark.parametrize(("kind", "order"), [c for c in CASES if c[0] != "pyramid"])
def test_element_matrices_are_exact(kind, order):
    cell = Mesh.from_arrays(*_reference_cell(kind)).raised(order)
    forms = (MassElementAssembler, LaplaceElementAssembler)
    for form, exact in zip(forms, exact_matrices(cell.default_element_type), strict=True):
        ours = form.from_mesh(cell)().to_dense().numpy()
        node = cell.elements()[0].numpy()
        assert abs(ours[node[:, None], node] - exact).max() <= 3e-12 * abs(exact).max()


def _reference_cell(kind):
    nodes = tm.element.reference_nodes(kind)
    return nodes, {kind: torch.arange(len(nodes)).unsqueeze(0)}


@pytest.mark.parametrize(("kind", "order"), ELEMENTS)
def test_stiffness_and_mass_are_those_of_scikit_fem(kind, order):
    mesh = only_top_cells(sheared(bulged(filled(kind)))).raised(order)
    degree = 2 * order + 2
    basis = basis_of(mesh, degree)
    for form, theirs in ((LaplaceElementAssembler, laplace), (MassElementAssembler, mass)):
        ours = form.from_mesh(mesh, quadrature_order=degree)().to_dense().numpy()
        expected = reordered(theirs.assemble(basis), mesh, basis)
        assert abs(ours - expected).max() < 1e-12 * abs(expected).max()


class Transport(tm.ElementAssembler):
    """Everything that a form can take."""

    def forward(self, u, v, gradu, gradv, x, a, grada, k, s):
        return k * a * (gradu @ gradv) + s * (a * (x @ gradu) + grada @ gradu) * v + u * v * x[0]

    def element_energy(self, w, gradw, x, k):
        return k * (gradw @ gradw) + x[0] * w**4


class Flux(tm.FacetAssembler):
    def forward(self, v, gradv, x, n, a):
        return a * (x @ n) * v + gradv @ n


def everything(mesh):
    x, cells = mesh.points, mesh.elements()
    a = torch.cos(x).sum(1)
    k = 1 + torch.arange(len(cells), dtype=x.dtype) / 7 % 1
    call = {"point_data": {"a": a}, "element_data": {"k": k}, "scalar_data": {"s": 0.7}}
    energy = {"point_data": {"w": a}, "element_data": {"k": k}}
    transport = Transport.from_mesh(mesh)
    (cells_of,) = transport.transformation.values()
    return [
        transport(**call).values,
        transport.energy(**energy),
        Flux.from_mesh(mesh)(point_data={"a": a}),
        tm.LinearElasticityElementAssembler.from_mesh(mesh, E=3.0, nu=0.3)().values,
        *(cells_of.JxW, cells_of.shape_grad, cells_of.jacobian, cells_of.detJ),
    ]


@pytest.mark.parametrize(("kind", "order"), [c for c in CASES if c[1] in (2, 3) and c[0] != "line"])
def test_the_vertices_give_the_geometry_that_all_nodes_give(kind, order):
    mesh = distorted(kind).raised(order)
    whole = Mesh.from_arrays(mesh.points, mesh.cells.to_dict())
    for straight, general in zip(everything(mesh), everything(whole), strict=True):
        assert (straight - general).abs().max() < 1e-12 * general.abs().max()


def test_other_nodes_than_vertices_have_no_influence():
    mesh = distorted("triangle").raised(2)
    n_vertices = distorted("triangle").n_points
    points = mesh.points.clone()
    expected = everything(mesh)[3]
    points[n_vertices:] += 0.1
    elasticity = tm.LinearElasticityElementAssembler.from_mesh(mesh, E=3.0, nu=0.3)
    assert torch.equal(elasticity(points=points).values, expected)
    points.requires_grad_()
    elasticity(points=points).values.square().sum().backward()
    assert bool((points.grad[n_vertices:] == 0).all())
    assert bool((points.grad[:n_vertices] != 0).any(dim=1).all())


def test_gradient_of_the_vertices():
    mesh = distorted("quad").raised(2)
    n_vertices = distorted("quad").n_points
    c = torch.rand(mesh.n_points, dtype=torch.float64, requires_grad=True)

    class Diffusion(tm.ElementAssembler):
        def forward(self, gradu, gradv, x, c):
            return c * x[0] * (gradu @ gradv)

    assembler = Diffusion.from_mesh(mesh)

    def values(vertices, c):
        points = torch.cat([vertices, mesh.points[n_vertices:]])
        return assembler(points=points, point_data={"c": c}).values[::9]

    vertices = mesh.points[:n_vertices].clone().requires_grad_()
    assert torch.autograd.gradcheck(values, (vertices, c), fast_mode=True)


def exact(x):
    return torch.sin(2 * x[..., 0] + 0.4) * torch.cos(1.5 * x[..., 1]) + x.sum(-1) ** 2 / 3


class Errors(tm.NodeAssembler):
    """Squared errors of values and of gradients; the test functions sum to one."""

    def forward(self, v, w, gradw, x):
        gradient = torch.func.grad(exact)(x)
        values = torch.stack([(w - exact(x)) ** 2, (gradw - gradient) @ (gradw - gradient)])
        return values * v


def errors(mesh, order):
    """Errors in L2 and H1 of the solution of -div grad u = f, u prescribed on the boundary."""
    high = mesh.raised(order)

    def load(x):
        wave = torch.sin(2 * x[0] + 0.4) * torch.cos(1.5 * x[1])
        return 6.25 * wave - 2 * mesh.dim / 3

    f = tm.func_node_assembler(load).from_mesh(high, 2 * order + 2)()
    condenser = Condenser(high.boundary_mask, exact(high.points))
    K, b = condenser(LaplaceElementAssembler.from_mesh(high)(), f)
    u = condenser.recover(K.solve(b))
    return Errors.from_mesh(high, 2 * order + 2)(point_data={"w": u}).view(-1, 2).sum(0).sqrt()


@pytest.mark.parametrize(
    ("element_type", "order", "sizes"),
    [
        *(
            ("tri", order, n)
            for order, n in ((1, (8, 16)), (2, (8, 16)), (3, (6, 12)), (4, (4, 8)))
        ),
        *(("quad", order, n) for order, n in ((2, (8, 16)), (3, (6, 12)), (4, (4, 8)))),
        *(("mixed", order, n) for order, n in ((2, (8, 16)), (3, (8, 16)))),
        *(("tet", order, n) for order, n in ((2, (4, 8)), (3, (3, 6)))),
        *(("hex", order, n) for order, n in ((2, (3, 6)), (3, (2, 4)))),
        ("wedge", 2, (3, 6)),
    ],
)
def test_orders_of_convergence(element_type, order, sizes):
    """L2 error p + 1, H1 error p, within a tenth."""
    generate = gen_rectangle if element_type in ("tri", "quad", "mixed") else gen_cube
    dim = 2 if generate is gen_rectangle else 3
    coarse, fine = (errors(generate(n=(n,) * dim, element_type=element_type), order) for n in sizes)
    rates = [math.log2(ratio) for ratio in (coarse / fine).tolist()]
    assert rates == pytest.approx([order + 1, order], abs=0.1)
