"""The rows of the assemblers: set-up, data, energies, facet matrices."""

import math

import numpy as np
import pytest
import skfem
import torch
from skfem.helpers import dot, grad
from torch.autograd import gradcheck, gradgradcheck

import tensormesh as tm
from tensormesh.assemble import FormError
from tests.assemble.entries import entries
from tests.assemble.meshes import distorted, filled, mixed
from tests.assemble.scikit_fem import basis_of, unknowns
from tests.sparse.matrices import dense

f64, c128 = torch.float64, torch.complex128


class Reaction(tm.ElementAssembler):
    def __post_init__(self, weight=1.0):
        self.weight = weight

    def forward(self, u, v):
        return self.weight * u * v


class Dirichlet(tm.ElementAssembler):
    def element_energy(self, gradu):
        return gradu @ gradu / 2


class Load(tm.NodeAssembler):
    def forward(self, v):
        return v


class Edge(tm.FacetAssembler):
    def forward(self, v):
        return v


class Robin(tm.FacetBilinearAssembler):
    def forward(self, u, v):
        return u * v


# -- common --------------------------------------------------------------------------------------


def test_row_from_mesh():
    """base-api 3 | `from_mesh(mesh, quadrature_order, project, *args, **kwargs)`."""
    mesh = filled("quad")
    for project in ("reduce", "sparse"):
        M = Reaction.from_mesh(mesh, 3, project, 2.0)()
        assert float(M.sum()) == pytest.approx(2)
    with pytest.raises(ValueError, match="project"):
        Reaction.from_mesh(mesh, project="other")
    with pytest.raises(TypeError):
        tm.MassElementAssembler.from_mesh(mesh, weight=1.0)  # takes no arguments


def test_row_from_assembler():
    """base-api 3 | `from_assembler(other, *args, **kwargs)`: shares topology; same family only."""
    mesh = filled("triangle")
    mass = tm.MassElementAssembler.from_mesh(mesh)
    M = Reaction.from_assembler(mass, weight=3.0)()
    assert float(M.sum()) == pytest.approx(3)
    assert M.row is mass().row
    for other in (Load, Robin):
        with pytest.raises(TypeError, match="from_assembler needs"):
            other.from_assembler(mass)


@pytest.mark.parametrize("cls", [Load, Edge, Robin])
def test_row_from_elements(cls):
    """base-api 3 | `from_elements(points, {type: conn}, ...)` of node and facet classes."""
    mesh = mixed()
    made = cls.from_elements(mesh.points, mesh.top_cells(), dtype=f64)
    same = cls.from_mesh(mesh)
    result, expected = made(), same()
    if isinstance(result, tm.SparseMatrix):
        result, expected = result.to_dense(), expected.to_dense()
    assert torch.equal(result, expected)
    single = cls.from_elements(mesh.points, mesh.top_cells())
    assert single.dtype == torch.float32


def test_row_facet_from_elements_with_a_mask():
    """base-api 3 | `FacetAssembler.from_elements(points, elements, boundary_mask, ...)`."""
    mesh = filled("quad")
    left = mesh.points[:, 0] == 0
    made = Edge.from_elements(mesh.points, mesh.top_cells(), left, 2, "cpu", f64)
    assert float(made().sum()) == pytest.approx(1)


def test_row_attributes():
    """base-api 3 | attributes: `element_types`, `elements`, `transformation`, `edges`, ..."""
    mesh = mixed()
    asm = tm.MassElementAssembler.from_mesh(mesh)
    assert asm.element_types == list(mesh.top_cells())
    assert (asm.n_points, asm.dimension, asm.dtype) == (mesh.n_points, 2, f64)
    assert asm.device.type == "cpu"
    K = asm()
    assert torch.equal(asm.edges, K.edges)
    area = sum(float(t.JxW.sum()) for t in asm.transformation.values())
    assert area == pytest.approx(1)
    assert set(asm.transformation) == set(asm.elements)
    assert "forward" in repr(asm)


def test_row_type():
    """base-api 3 | `type(dtype)`, `to`, `float`, `double`; complex leaves geometry real."""
    mesh = filled("triangle")
    asm = tm.MassElementAssembler.from_mesh(mesh)
    assert asm.type(torch.float32) is asm
    assert asm().dtype == torch.float32
    assert asm.type(c128).dtype == f64
    assert asm(func=lambda u, v, c: c * u * v, scalar_data={"c": 1j}).dtype == c128
    assert asm.float().double().to(torch.float32).dtype == torch.float32
    for cls in (Load, Edge):
        assert cls.from_mesh(mesh).type(torch.float32)().dtype == torch.float32
        with pytest.raises(TypeError, match="floating-point"):
            cls.from_mesh(mesh).type(c128)


def test_row_points_stay():
    """base-api 3 | calling with `points` replaces the stored coordinates; known-faults 1."""
    mesh = filled("quad")
    asm = tm.MassElementAssembler.from_mesh(mesh)
    assert float(asm().sum()) == pytest.approx(1)
    assert float(asm.energy(func=lambda x: x[0] * 0 + 1.0)) == pytest.approx(1)
    assert float(asm(points=2 * mesh.points).sum()) == pytest.approx(4)
    assert float(asm().sum()) == pytest.approx(4)
    assert float(asm.energy(func=lambda x: x[0] * 0 + 1.0)) == pytest.approx(4)


def test_row_unknown_names():
    """base-api 3 | arguments are matched by name: unknown ones are `ValueError`."""
    mesh = filled("triangle")
    for cls in (tm.MassElementAssembler, Load, Edge, Robin):
        with pytest.raises(ValueError, match="nothing is called 'w'"):
            cls.from_mesh(mesh)(func=lambda v, w: v)


# -- ElementAssembler ----------------------------------------------------------------------------


def test_row_element_data():
    """base-api 3 | `asm(points, func, point_data, element_data, scalar_data, batch_size)`."""
    mesh = filled("triangle", 3)
    x, n_cells = mesh.points, mesh.n_elements
    k = torch.arange(1.0, n_cells + 1, dtype=f64)

    def form(u, v, x, gradx, a, grada, w, gradw, k, s):
        return (a + grada[0] + w[1] + gradw[1, 0] + k + s + x[1] + gradx[0, 0]) * u * v

    data = {"a": x[:, 0], "w": torch.stack([x[:, 1], 2 * x[:, 0]], 1)}
    M = tm.ElementAssembler.from_mesh(mesh)(
        func=form, point_data=data, element_data={"k": k}, scalar_data={"s": 0.5}
    )
    area = tm.Transformation(x, mesh.elements(), "triangle").JxW.sum(1)
    # Integrals over the unit square: x, 1, 2 x, 2, k by cell, 1/2, y, 1.
    expected = 0.5 + 1 + 1 + 2 + float(area @ k) + 0.5 + 0.5 + 1
    assert float(M.sum()) == pytest.approx(expected)


def test_row_element_data_of_a_vector_with_as_many_entries_as_points():
    """known-faults 9 | a [cells, 3] vector stays a vector; per-point values are marked."""
    mesh = filled("triangle", 3)
    asm = tm.MassElementAssembler.from_mesh(mesh)
    at = asm.transformation["triangle"]
    n, q = mesh.n_elements, at.n_quadrature
    x = torch.einsum("qb,ebd->eqd", at.shape_val, at.element_coords)
    vector = torch.arange(float(n * q), dtype=f64).view(n, q)
    M = asm(func=lambda u, v, c: c[1] * u * v, element_data={"c": vector})
    E = asm.energy(func=lambda c: c[1], element_data={"c": vector})
    expected = float(at.JxW.sum(1) @ vector[:, 1])
    assert float(M.sum()) == pytest.approx(expected)
    assert float(E) == pytest.approx(expected)
    marked = {"c": tm.PerQuadraturePoint(x[..., 0] ** 2)}
    form, density = (lambda u, v, c: c * u * v), (lambda c: c)
    assert float(asm(func=form, element_data=marked).sum()) == pytest.approx(1 / 3)
    assert float(asm.energy(func=density, element_data=marked)) == pytest.approx(1 / 3)
    load = Load.from_mesh(mesh)(
        func=lambda v, c: c[1] * v, element_data={"c": tm.PerQuadraturePoint(x)}
    )
    assert float(load.sum()) == pytest.approx(0.5)


def test_row_values_per_point_equal_a_coordinate():
    """known-faults 9 | values at the points of `transformation` are those the form sees there.

    features | PerQuadraturePoint: serial, differentiable.
    """
    mesh = distorted("quad")
    asm = tm.MassElementAssembler.from_mesh(mesh, 5)
    at = asm.transformation["quad"]
    x = torch.einsum("qb,ebd->eqd", at.shape_val, at.element_coords)
    A = asm(func=lambda u, v, x: torch.exp(x[0]) * u * v)
    data = {"c": {"quad": tm.PerQuadraturePoint(torch.exp(x[..., 0]))}}
    B = asm(func=lambda u, v, c: c * u * v, element_data=data)
    assert torch.allclose(A.values, B.values, rtol=1e-13)
    values = torch.exp(x[..., 0]).requires_grad_()
    data = {"c": tm.PerQuadraturePoint(values)}
    asm(func=lambda u, v, c: c * u * v, element_data=data).sum().backward()
    assert torch.allclose(values.grad, at.JxW)


def test_row_values_per_point_are_checked():
    """known-faults 9 | marked values of another size, or on facets, are refused."""
    mesh = filled("triangle")
    n, form = mesh.n_elements, lambda u, v, c: c * u * v
    asm = tm.MassElementAssembler.from_mesh(mesh)
    for wrong, words in (
        ((n, 2), "second size"),
        ((n,), "second size"),
        ((n + 1, 3), "first size"),
    ):
        with pytest.raises(ValueError, match=words):
            asm(func=form, element_data={"c": tm.PerQuadraturePoint(torch.ones(wrong))})
    fits = torch.ones(n, asm.transformation["triangle"].n_quadrature)
    facets = Robin.from_mesh(mesh)
    with pytest.raises(TypeError, match="facets have others"):
        facets(func=form, element_data={"c": tm.PerQuadraturePoint(fits)})


def test_row_scalar_data():
    """known-faults 8 | `scalar_data={"c": 2.0}` works, in matrices and in energies."""
    asm = Reaction.from_mesh(filled("triangle"))
    for c in (2.0, torch.tensor(2.0, dtype=f64)):
        data = {"c": c}
        assert float(asm(func=lambda u, v, c: c * u * v, scalar_data=data).sum()) == pytest.approx(
            2
        )
        assert float(asm.energy(func=lambda c: 3 * c, scalar_data=data)) == pytest.approx(6)
    assert float(asm(element_data={}, point_data={}, scalar_data={}).sum()) == pytest.approx(1)


def test_row_block_result():
    """base-api 3 | return `[H, H]` -> `[nH, nH]`, unknown `node*H + component`."""
    mesh = filled("triangle")
    block = torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=f64)
    M = tm.MassElementAssembler.from_mesh(mesh)
    K = M(func=lambda u, v: u * v * block)
    assert torch.allclose(K.to_dense(), torch.kron(M().to_dense(), block))


def test_row_orientation():
    """known-faults 7 | `forward(u, v, gradu) = gradu[0] * v`: K @ 1 = 0, facet class included."""
    mesh, form = distorted("triangle"), lambda u, v, gradu: gradu[0] * v
    one = torch.ones(mesh.n_points, dtype=f64)
    for cls in (tm.ElementAssembler, tm.FacetBilinearAssembler):
        K = cls.from_mesh(mesh)(func=form)
        assert float((K @ one).abs().max()) < 1e-14
        assert float((K.T @ one).abs().max()) > 0.01


@pytest.mark.parametrize("batch_size", [-1, None, 1, 7, 10_000])
def test_row_batch_size(batch_size):
    """base-api 3 | `batch_size`: result unchanged.

    features | blocks of cells (batch_size): serial.
    """
    mesh = filled("quad")
    for cls in (tm.MassElementAssembler, Load):
        asm = cls.from_mesh(mesh)
        found = entries(asm(batch_size=batch_size))
        torch.testing.assert_close(found, entries(asm()), rtol=1e-14, atol=1e-15)
    energy = Dirichlet.from_mesh(mesh).energy(
        point_data={"u": mesh.points[:, 0]}, batch_size=batch_size
    )
    assert float(energy) == pytest.approx(0.5)


@pytest.mark.parametrize("batch_size", [0, -2, 1.5, True])
def test_row_batch_size_refuses(batch_size):
    """base-api 3 | `batch_size` 0 is a `ValueError`."""
    mesh = filled("quad")
    for call in (Reaction.from_mesh(mesh), Load.from_mesh(mesh), Dirichlet.from_mesh(mesh).energy):
        with pytest.raises(ValueError, match="batch_size"):
            call(batch_size=batch_size)


def test_row_memory_of_quadratic_elasticity():
    """known-faults 11 | 216 27-node hexahedra, elasticity: memory of the order of the result."""
    mesh = filled("hexahedron27", 6)
    asm = tm.LinearElasticityElementAssembler.from_mesh(mesh)
    with torch.profiler.profile(profile_memory=True) as profile:
        K = asm()
    largest = max(e.self_cpu_memory_usage for e in profile.events())
    result = K.nnz * (8 + 16)
    assert largest < 5 * result


# -- energy --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["triangle", "quad", "tetra", "hexahedron27", "wedge", "pyramid"])
def test_row_energy(kind):
    """base-api 3 | `asm.energy(...)` -> 0-d: integral of `element_energy` over fields.

    features | energies: serial.
    """
    mesh = filled(kind)
    direction = torch.tensor([3.0, -1.0, 2.0], dtype=f64)[: mesh.dim]
    u = (mesh.points @ direction).requires_grad_()
    energy = Dirichlet.from_mesh(mesh).energy(point_data={"u": u})
    assert energy.shape == ()
    assert float(energy.detach()) == pytest.approx(float(direction @ direction) / 2)
    (force,) = torch.autograd.grad(energy, u)
    K = tm.LaplaceElementAssembler.from_mesh(mesh)()
    assert torch.allclose(force, K @ u.detach(), atol=1e-12)


def test_row_energy_arguments():
    """base-api 3 | energy: fields, `gradname`, `x`, `gradx`, element and scalar data, `func`."""
    mesh = mixed()
    x = mesh.points
    cells = {kind: torch.full((len(c),), 2.0) for kind, c in mesh.top_cells().items()}

    def density(u, gradu, v, x, gradx, k, s):
        return u * k + gradu[1] + v[0] * x[1] + torch.trace(gradx) + s

    energy = tm.ElementAssembler.from_mesh(mesh).energy(
        func=density,
        point_data={"u": x[:, 0], "v": torch.stack([x[:, 0], x[:, 1]], 1)},
        element_data={"k": cells},
        scalar_data={"s": 0.25},
    )
    # 2 x + 0 + x y + 2 + 1/4 over the unit square.
    assert float(energy) == pytest.approx(1 + 0.25 + 2 + 0.25)


def test_row_energy_derivatives():
    """base-api 3 | `energy` is differentiable: in fields to second order, points, constants.

    features | energies: differentiable.
    """
    mesh = filled("quad", 1)
    asm = tm.ElementAssembler.from_mesh(mesh)

    def energy(u, points, k, s):
        return asm.energy(
            points,
            lambda u, gradu, k, s, x: k * u**4 + torch.exp(s * (gradu @ gradu)) * x[0],
            {"u": u},
            {"k": k},
            {"s": s},
        )

    given = (
        torch.randn(mesh.n_points, dtype=f64, requires_grad=True),
        mesh.points.clone().requires_grad_(),
        torch.rand(mesh.n_elements, dtype=f64, requires_grad=True),
        torch.tensor(0.3, dtype=f64, requires_grad=True),
    )
    assert gradcheck(energy, given)
    assert gradgradcheck(energy, given)


def test_row_energy_in_blocks(monkeypatch):
    """base-api 3 | `energy`: the number of cells at a time changes nothing."""
    mesh = distorted("triangle", 4)
    asm, data = Dirichlet.from_mesh(mesh), {"u": torch.sin(mesh.points[:, 0])}
    whole = asm.energy(point_data=data)
    monkeypatch.setattr("tensormesh.assemble.form.BLOCK_NUMBERS", 7)
    assert float(asm.energy(point_data=data)) == pytest.approx(float(whole), rel=1e-13)


def test_row_energy_refuses():
    """base-api 3 | `energy`: no density, unknown names, results that are no number."""
    asm = tm.MassElementAssembler.from_mesh(filled("triangle"))
    with pytest.raises(NotImplementedError, match="element_energy"):
        asm.energy()
    with pytest.raises(ValueError, match="nothing is called 'u'"):
        asm.energy(func=lambda u: u)
    with pytest.raises(FormError, match="expected a number"):
        asm.energy(func=lambda x: x)
    with pytest.raises(FormError, match="expected a tensor"):
        asm.energy(func=lambda x: 1.0)


# -- node and facet classes ----------------------------------------------------------------------


def test_row_node_compile_is_accepted():
    """base-api 3 | `compile`, `flat_mode`, `reset_compile`, `is_compiled`: accepted no-ops."""
    asm = Load.from_mesh(filled("quad"))
    assert asm.compile(mode="reduce-overhead", dynamic=True) is asm
    assert asm.flat_mode() is asm
    assert asm.reset_compile() is asm
    assert not asm.is_compiled
    assert float(asm().sum()) == pytest.approx(1)


def test_row_node():
    """base-api 3 | `NodeAssembler(...)` -> `[n]` or `[n*H]`, node-major; complex results."""
    mesh = filled("quad")
    asm = Load.from_mesh(mesh)
    one = asm()
    both = asm(func=lambda v: v * torch.tensor([1.0, 2.0], dtype=f64))
    assert torch.allclose(both, torch.kron(one, torch.tensor([1.0, 2.0], dtype=f64)))
    assert asm(func=lambda v, c: c * v, point_data={"c": mesh.points[:, 0] + 1j}).dtype == c128


@pytest.mark.parametrize("kind", ["triangle", "quad", "tetra", "hexahedron"])
def test_row_facet_bilinear(kind):
    """base-api 3 | `FacetBilinearAssembler`: against scikit-fem, normal and gradients included.

    features | FacetBilinearAssembler: serial.
    """
    mesh = distorted(kind) if kind in ("triangle", "tetra") else filled(kind)
    asm = tm.FacetBilinearAssembler.from_mesh(mesh, quadrature_order=4)
    found = asm(func=lambda u, v, gradu, x, n: (2 + x[0]) * u * v + (gradu @ n) * v)
    cells = basis_of(mesh, 4)
    facets = skfem.FacetBasis(cells.mesh, cells.elem, intorder=4)

    @skfem.BilinearForm
    def form(u, v, w):
        return (2 + w.x[0]) * u * v + dot(grad(u), w.n) * v

    number = unknowns(mesh, cells)
    expected = np.zeros(found.shape)
    expected[np.ix_(number, number)] = form.assemble(facets).toarray()
    assert np.allclose(dense(found), expected, atol=1e-13)


def test_row_facet_bilinear_layout_and_masks():
    """base-api 3 | `FacetBilinearAssembler`: `[n, n]`, adds to matrices of the cells; masks."""
    mesh = filled("quad")
    K = tm.LaplaceElementAssembler.from_mesh(mesh)()
    R = Robin.from_mesh(mesh)()
    assert R.has_same_layout(K)
    assert float((K + R).sum()) == pytest.approx(4)
    left = mesh.points[:, 0] == 0
    mesh.register_point_data("left", left)
    for mask in (left, "left"):
        assert float(Robin.from_mesh(mesh, mask)().sum()) == pytest.approx(1)
    none = torch.zeros(mesh.n_points, dtype=torch.bool)
    assert not Robin.from_mesh(mesh, none)().values.any()
    with pytest.raises(KeyError):
        Robin.from_mesh(mesh, "nowhere")
    with pytest.raises(ValueError, match="boundary_mask"):
        Robin.from_mesh(mesh, left[:-1])
    from_vector = Robin.from_assembler(Edge.from_mesh(mesh, left))
    assert float(from_vector().sum()) == pytest.approx(1)


def test_row_facet_bilinear_complex_blocks_and_gradients():
    """base-api 3 | `FacetBilinearAssembler`: complex coefficients, blocks, derivatives.

    features | FacetBilinearAssembler: differentiable.
    """
    mesh = filled("triangle")
    asm, block = Robin.from_mesh(mesh), torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=f64)
    Z = asm(func=lambda u, v, k: 1j * k * u * v, scalar_data={"k": 3.0})
    assert Z.dtype == c128
    assert complex(Z.sum()) == pytest.approx(12j)
    K = asm(func=lambda u, v: u * v * block)
    assert torch.allclose(K.to_dense(), torch.kron(asm().to_dense(), block))

    def values(points, k):
        return asm(points, lambda u, v, gradu, n, k: k * u * v + (gradu @ n) * v, {"k": k}).values

    k = torch.rand(mesh.n_points, dtype=f64, requires_grad=True)
    assert gradcheck(values, (mesh.points.clone().requires_grad_(), k))


def test_row_facet_bilinear_refuses():
    """base-api 3 | `FacetBilinearAssembler`: forms that are not bilinear."""
    asm = Robin.from_mesh(filled("triangle"))
    for form in (lambda v: v, lambda u: u):
        with pytest.raises(FormError, match="bilinear"):
            asm(func=form)
    with pytest.raises(FormError, match="not linear"):
        asm(func=lambda u, v: u * u * v)


@pytest.mark.parametrize("make", [filled, distorted])
def test_row_robin_and_port(make):
    """base-api 3 | `robin_operator(mesh, mask, coeff)`, `port_source(mesh, mask, incident)`."""
    mesh = make("triangle")
    perimeter = float(Edge.from_mesh(mesh)().sum())
    n = mesh.n_points
    one = torch.ones(n, dtype=f64)
    for c in (2.0, 2j, torch.tensor(2.0), 2 * one, torch.tensor(2j)):
        R, f = tm.robin_operator(mesh, coeff=c), tm.port_source(mesh, incident=c)
        size = complex(torch.as_tensor(c).reshape(-1)[0])
        assert complex(R.sum()) == pytest.approx(size * perimeter)
        assert torch.allclose(R @ one.to(R.dtype), f)
    moved = tm.robin_operator(mesh, points=2 * mesh.points, quadrature_order=4)
    assert float(moved.sum()) == pytest.approx(2 * perimeter)
    assert tm.port_source(mesh, mesh.points[:, 0] > -1e9).sum() == pytest.approx(perimeter)


def test_robin_problem_converges():
    """base-api 3 | `robin_operator`, `port_source`: -u'' + ... with u = cosh on three sides.

    features | robin_operator, port_source: serial.
    """
    errors = []
    for n in (8, 16):
        mesh = tm.Mesh.gen_rectangle(n=(n, n), element_type="quad")
        x = mesh.points[:, 0]
        K = tm.LaplaceElementAssembler.from_mesh(mesh)() + tm.MassElementAssembler.from_mesh(mesh)()
        # u = cosh x solves -u'' + u = 0; at x = 1, u' + 2 u = sinh 1 + 2 cosh 1; u' = 0 at x = 0.
        right = x == 1
        g = math.sinh(1) + 2 * math.cosh(1)
        K = K + tm.robin_operator(mesh, right, 2.0)
        u = K.solve(tm.port_source(mesh, right, g))
        errors.append(float((u - torch.cosh(x)).abs().max()))
    assert errors[0] < 5e-3
    assert errors[1] < 0.3 * errors[0]
