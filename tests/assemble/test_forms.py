"""What the arguments of a form mean, and what is refused."""

import math

import pytest
import torch
from scipy.integrate import dblquad

from tensormesh.assemble import (
    ElementAssembler,
    FormError,
    LaplaceElementAssembler,
    MassElementAssembler,
    NodeAssembler,
    const_node_assembler,
)
from tensormesh.mesh.generators import gen_rectangle
from tensormesh.mesh.mesh import Mesh
from tests.assemble.meshes import bulged, distorted, filled, mixed

f64 = torch.float64


@pytest.fixture
def mesh():
    """Unequal triangles that fill the unit square."""
    return bulged(filled("triangle", 3))


@pytest.fixture
def element(mesh):
    return MassElementAssembler.from_mesh(mesh, quadrature_order=6)


@pytest.fixture
def node(mesh):
    return const_node_assembler().from_mesh(mesh, quadrature_order=6)


def bilinear(assembler, form, left, right, **data):
    """a(u = right, v = left): rows belong to the test function."""
    return float(left @ (assembler(func=form, **data) @ right))


# -- orientation and basis arguments -------------------------------------------------------------


class Advection(ElementAssembler):
    def forward(self, gradu, v):
        return gradu[0] * v


def test_rows_are_test_functions(mesh):
    """known-faults | 7: `gradu[0] * v`: K @ 1 is zero."""
    K = Advection.from_mesh(mesh)()
    one = torch.ones(mesh.n_points, dtype=f64)
    assert (K @ one).abs().max() < 1e-15  # the derivative of u = 1
    assert float(one @ (K @ mesh.points[:, 0])) == pytest.approx(1.0)  # int dx/dx * 1
    assert (one @ K).abs().max() > 0.1


def test_order_of_arguments_means_nothing(mesh):
    a = Advection.from_mesh(mesh)()
    b = Advection.from_mesh(mesh)(func=lambda v, gradu: gradu[0] * v)
    assert torch.equal(a.values, b.values)


@pytest.mark.parametrize(
    ("form", "value"),
    [
        # With v = x, u = y on the unit square.
        (lambda u, v: u * v, 1 / 4),
        (lambda u, gradv: u * gradv[0], 1 / 2),
        (lambda gradu, v: gradu[1] * v, 1 / 2),
        (lambda gradu, gradv: gradu[1] * gradv[0], 1.0),
        (lambda gradu, gradv: gradu @ gradv, 0.0),
        (lambda u, gradu, v: (u + 2 * gradu[1]) * v, 1 / 4 + 1),
        (lambda u, v, gradv: u * (v - gradv[0]), 1 / 4 - 1 / 2),
        (lambda u, gradu, v, gradv: u * v + gradu[1] * gradv[0] + u * gradv[0], 1 / 4 + 1 + 1 / 2),
        # and the coordinate in it
        (lambda u, v, x: x[0] * x[1] * u * v, 1 / 9),
        (lambda gradu, gradv, x: x[0] ** 2 * gradu[1] * gradv[0], 1 / 3),
        (lambda u, gradv, x: x[1] * u * gradv[0], 1 / 3),
        (lambda u, v, gradx: gradx[0, 0] * gradx[1, 1] * u * v, 1 / 4),
        (lambda u, v, gradx: gradx[0, 1] * u * v, 0.0),
    ],
)
def test_values_and_gradients_of_linear_fields(mesh, element, form, value):
    x, y = mesh.points.T
    assert bilinear(element, form, x, y) == pytest.approx(value, abs=1e-14)


def test_coefficient_of_the_coordinate_against_scipy(element):
    one = torch.ones(element.n_points, dtype=f64)
    found = bilinear(element, lambda u, v, x: torch.exp(x[0] * x[1]) * u * v, one, one)
    exact, _ = dblquad(lambda y, x: math.exp(x * y), 0, 1, 0, 1)
    assert found == pytest.approx(exact, rel=1e-8)


@pytest.mark.parametrize(
    ("form", "value"),
    [
        (lambda v: v, 1.0),
        (lambda v, x: x[0] * v, 1 / 2),
        (lambda gradv, x: x[0] * gradv[0] + x[1] * gradv[1], 0.0),  # the sum of all v is one
    ],
)
def test_linear_forms_sum_to_integrals(node, form, value):
    """features | NodeAssembler: serial."""
    assert float(node(func=form).sum()) == pytest.approx(value, abs=1e-14)


def test_linear_form_with_gradient_tested_by_a_linear_field(mesh, node):
    f = node(func=lambda v, gradv, x: x[1] * gradv[0] + v)
    assert float(mesh.points[:, 0] @ f) == pytest.approx(1 / 2 + 1 / 2)  # v = x


# -- blocks --------------------------------------------------------------------------------------


def test_blocks_are_node_major_and_rows_are_test_components(mesh):
    """features | vector-valued forms: serial."""
    A = torch.tensor([[1.0, 2.0, 0.0], [3.0, 4.0, -1.0], [0.5, 0.0, 7.0]], dtype=f64)
    M = MassElementAssembler.from_mesh(mesh)()
    blocks = MassElementAssembler.from_mesh(mesh)(
        func=lambda u, v, A: A * u * v, scalar_data={"A": A}
    )
    assert blocks.shape == (3 * mesh.n_points,) * 2
    assert torch.allclose(blocks.to_dense(), torch.kron(M.to_dense(), A), rtol=0, atol=1e-15)
    assert bool(
        (
            blocks.row[1:] * blocks.shape[1] + blocks.col[1:]
            > blocks.row[:-1] * blocks.shape[1] + blocks.col[:-1]
        ).all()
    )


def test_vector_loads_are_node_major(mesh, node):
    f = node(func=lambda v, t: t * v, scalar_data={"t": torch.tensor([2.0, -3.0], dtype=f64)})
    assert f.shape == (2 * mesh.n_points,)
    scalar = node(func=lambda v: v)
    assert torch.allclose(f.view(-1, 2), torch.stack([2 * scalar, -3 * scalar], 1))


def test_block_of_one_is_a_scalar_form(mesh, element):
    one = element(func=lambda u, v: (u * v).reshape(1, 1))
    assert torch.allclose(one.to_dense(), element().to_dense(), rtol=0, atol=1e-16)


def test_pattern_is_sorted_complete_and_keeps_zeros(mesh):
    K = LaplaceElementAssembler.from_mesh(mesh)(func=lambda gradu, gradv: 0 * (gradu @ gradv))
    pairs = {(int(a), int(b)) for c in mesh.cells["triangle"] for a in c for b in c}
    assert [tuple(p) for p in K.edges.T.tolist()] == sorted(pairs)
    assert not K.values.any()


# -- data ----------------------------------------------------------------------------------------


def test_scalar_vector_and_tensor_fields(mesh, element):
    """features | fields at nodes: serial."""
    x, y = mesh.points.T
    data = {
        "s": x,
        "t": torch.stack([x, y], 1),
        "A": torch.stack([torch.stack([x, y], 1), torch.stack([y, 2 * x], 1)], 1),
    }
    one = torch.ones_like(x)
    for form, value in [
        (lambda u, v, s: s * u * v, 1 / 2),
        (lambda u, v, t: t[1] * t[0] * u * v, 1 / 4),
        (lambda u, v, A: torch.trace(A) * u * v, 3 / 2),
        (lambda u, v, A, t: (A @ t)[0] * u * v, 1 / 3 + 1 / 3),
        (lambda u, v, A: A[0, 1] * u * v, 1 / 2),
    ]:
        assert bilinear(element, form, one, one, point_data=data) == pytest.approx(value)


def test_gradients_of_fields_have_the_derivative_last(mesh, element):
    x, y = mesh.points.T
    data = {
        "s": 2 * x - y,
        "t": torch.stack([3 * x, 5 * y], 1),
        "A": torch.stack([torch.stack([x, 7 * y], 1), torch.stack([0 * y, 2 * x], 1)], 1),
    }
    one = torch.ones_like(x)
    for form, value in [
        (lambda u, v, grads: grads[0] * u * v, 2.0),
        (lambda u, v, grads: grads[1] * u * v, -1.0),
        (lambda u, v, gradt: gradt[1, 1] * u * v, 5.0),
        (lambda u, v, gradt: gradt[0, 1] * u * v, 0.0),
        (lambda u, v, gradA: gradA[0, 1, 1] * u * v, 7.0),
        (lambda u, v, gradA: gradA[1, 1, 0] * u * v, 2.0),
        (lambda u, v, s, grads: s * grads[0] * u * v, 1.0),
    ]:
        assert bilinear(element, form, one, one, point_data=data) == pytest.approx(value, abs=1e-13)


@pytest.mark.parametrize("kind", ["triangle6", "quad9", "tetra10", "wedge18"])
def test_quadratic_fields_are_interpolated_with_the_basis_of_the_cell(kind):
    mesh = filled(kind)
    w = mesh.points[:, 0] ** 2
    node = const_node_assembler().from_mesh(mesh, quadrature_order=6)
    assert float(node(func=lambda v, w: w * v, point_data={"w": w}).sum()) == pytest.approx(1 / 3)
    slope = node(func=lambda v, gradw: gradw[0] ** 2 * v, point_data={"w": w})
    assert float(slope.sum()) == pytest.approx(4 / 3)


def test_values_per_cell(mesh, element):
    """features | values per cell: serial."""
    x = mesh.points[mesh.cells["triangle"]]
    a, b = x[:, 1] - x[:, 0], x[:, 2] - x[:, 0]
    area = (a[:, 0] * b[:, 1] - a[:, 1] * b[:, 0]).abs() / 2
    one = torch.ones(mesh.n_points, dtype=f64)
    c = torch.linspace(1, 2, mesh.n_elements, dtype=f64)
    found = bilinear(element, lambda u, v, c: c * u * v, one, one, element_data={"c": c})
    assert found == pytest.approx(float(c @ area))
    A = torch.rand(mesh.n_elements, 2, 2, dtype=f64)
    found = element(func=lambda gradu, gradv, A: gradu @ A @ gradv, element_data={"A": A})
    y = mesh.points[:, 1]
    assert float(mesh.points[:, 0] @ (found @ y)) == pytest.approx(float(A[:, 1, 0] @ area))


def test_values_per_cell_as_wide_as_the_rule_are_a_vector(mesh):
    # A [cells, 3] array is a vector on each cell, even where the rule has three points.
    """known-faults | 9: a vector a cell, as wide as the rule."""
    element = MassElementAssembler.from_mesh(mesh)
    c = torch.tensor([1.0, 10.0, 100.0], dtype=f64).expand(mesh.n_elements, 3)
    K = element(func=lambda u, v, c: c[2] * u * v, element_data={"c": c})
    assert float(K.values.sum()) == pytest.approx(100.0)


def test_several_cell_types_are_summed_and_take_values_per_type():
    """features | several cell types in a mesh: serial."""
    mesh = mixed()
    element = MassElementAssembler.from_mesh(mesh)
    assert element.element_types == list(mesh.cells)
    assert float(element().values.sum()) == pytest.approx(1.0)
    c = {"quad": torch.full((len(mesh.cells["quad"]),), 3.0, dtype=f64)}
    c["triangle"] = torch.full((len(mesh.cells["triangle"]),), 5.0, dtype=f64)
    K = element(func=lambda u, v, c: c * u * v, element_data={"c": c})
    assert float(K.values.sum()) == pytest.approx((3 + 5) / 2)  # quads fill the left half


def test_a_bare_tensor_per_cell_is_refused_on_several_types():
    mesh = mixed()
    element = MassElementAssembler.from_mesh(mesh)
    data = torch.ones(mesh.n_elements, dtype=f64)
    with pytest.raises(ValueError, match="quad"):
        element(func=lambda u, v, c: c * u * v, element_data={"c": data})
    with pytest.raises(ValueError, match=r"lacks cell types.*triangle"):
        element(func=lambda u, v, c: c * u * v, element_data={"c": {"quad": data}})


@pytest.mark.parametrize(
    "c", [2.0, 2, torch.tensor(2.0, dtype=f64), torch.tensor(2.0), torch.tensor(2)]
)
def test_constants(mesh, element, c):
    """known-faults | 8: `scalar_data`."""
    K = element(func=lambda u, v, c: c * u * v, scalar_data={"c": c})
    assert torch.equal(K.values, element(func=lambda u, v: 2 * u * v).values)


def test_python_numbers_keep_their_digits(mesh, element):
    K = element(func=lambda u, v, c: c * u * v, scalar_data={"c": 0.1 + 0.3j})
    assert complex(K.values.sum()) == pytest.approx(0.1 + 0.3j, abs=1e-15)
    K = element(func=lambda u, v, c: c * u * v, scalar_data={"c": [[0.1, 0.0], [0.0, 0.7]]})
    assert float(K.values.sum()) == pytest.approx(0.8, abs=1e-15)


def test_constants_and_values_per_cell_in_linear_forms(mesh, node):
    c = torch.full((mesh.n_elements,), 3.0, dtype=f64)
    f = node(func=lambda v, c, k: c * k * v, element_data={"c": c}, scalar_data={"k": 0.5})
    assert float(f.sum()) == pytest.approx(1.5)


def test_data_are_not_written_to(mesh, element):
    w, c = torch.rand(mesh.n_points, dtype=f64), torch.rand(mesh.n_elements, dtype=f64)
    before = w.clone(), c.clone(), mesh.points.clone()
    point_data, element_data = {"w": w, "x": w}, {"c": c}
    element(
        func=lambda u, v, w, c, x: w * c * x[0] * u * v,
        point_data=point_data,
        element_data=element_data,
    )
    assert list(point_data) == ["w", "x"]
    assert list(element_data) == ["c"]
    assert point_data["w"] is w
    assert element_data["c"] is c
    assert all(map(torch.equal, (w, c, mesh.points), before))


def test_the_coordinate_wins_over_a_field_called_x(mesh, element):
    one = torch.ones(mesh.n_points, dtype=f64)
    found = bilinear(
        element, lambda u, v, x: x[0] * u * v, one, one, point_data={"x": 9 * mesh.points}
    )
    assert found == pytest.approx(1 / 2)


def test_empty_data_are_no_data(mesh, element):
    K = element(point_data={}, element_data={}, scalar_data={})
    assert torch.equal(K.values, element().values)


# -- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["u", "v", "gradu", "gradv"])
@pytest.mark.parametrize("where", ["point_data", "element_data", "scalar_data"])
def test_names_of_the_basis_are_reserved(mesh, element, name, where):
    size = {"point_data": mesh.n_points, "element_data": mesh.n_elements, "scalar_data": 1}[where]
    with pytest.raises(ValueError, match=f"{name}"):
        element(**{where: {name: torch.ones(size, dtype=f64)}})


@pytest.mark.parametrize("where", ["element_data", "scalar_data"])
def test_the_coordinate_is_reserved(mesh, element, where):
    size = {"element_data": mesh.n_elements, "scalar_data": 1}[where]
    with pytest.raises(ValueError, match="'x'"):
        element(func=lambda u, v, x: x[0] * u * v, **{where: {"x": torch.ones(size, dtype=f64)}})


def test_a_name_in_two_places_is_refused(mesh, element):
    with pytest.raises(ValueError, match=r"'k'.*point_data.*scalar_data"):
        element(point_data={"k": torch.ones(mesh.n_points)}, scalar_data={"k": 1.0})


def test_unknown_argument_is_named_with_what_there_is(element, node):
    data = {"T": torch.ones(element.n_points)}
    with pytest.raises(ValueError, match=r"'conductivity'.* u, gradu, v, gradv, .*T, gradT"):
        element(func=lambda u, v, conductivity: conductivity * u * v, point_data=data)
    with pytest.raises(ValueError, match=r"'conductivity'.* v, gradv, .*T, gradT"):
        node(func=lambda v, conductivity: conductivity * v, point_data=data)


def test_linear_form_has_no_trial_function(node):
    with pytest.raises(ValueError, match="'u'"):
        node(func=lambda u, v: u * v)


@pytest.mark.parametrize("form", [lambda *a: a[0] * a[1], lambda u, v, **k: u * v])
def test_unnamed_arguments_are_refused(element, form):
    with pytest.raises(ValueError, match="not allowed"):
        element(func=form)


def test_defaults_are_not_honoured(element):
    with pytest.raises(ValueError, match="'k'"):
        element(func=lambda u, v, k=2.0: k * u * v)


@pytest.mark.parametrize(
    "form", [lambda u: u, lambda gradv: gradv[0], lambda x: x[0], lambda u, gradu: u * gradu[0]]
)
def test_bilinear_form_needs_both_functions(element, form):
    with pytest.raises(FormError, match="one of u, gradu and one of v, gradv"):
        element(func=form)


def test_linear_form_needs_a_test_function(node):
    with pytest.raises(FormError, match="one of v, gradv"):
        node(func=lambda x: x[0])


@pytest.mark.parametrize("shape", [(2,), (2, 3), (2, 2, 2)])
def test_blocks_must_be_square(element, shape):
    with pytest.raises(FormError, match=r"expected a number or an \[H, H\]"):
        element(func=lambda u, v: torch.ones(shape, dtype=f64) * u * v)


def test_linear_forms_return_numbers_or_vectors(node):
    with pytest.raises(FormError, match=r"expected a number or an \[H\]"):
        node(func=lambda v: torch.ones(2, 2, dtype=f64) * v)


@pytest.mark.parametrize("result", [1.0, None, (1.0, 2.0)])
def test_forms_return_tensors(element, node, result):
    with pytest.raises(FormError, match=type(result).__name__):
        element(func=lambda u, v: result)
    with pytest.raises(FormError, match=type(result).__name__):
        node(func=lambda v: result)


def test_an_error_of_the_form_itself_comes_through(element):
    with pytest.raises(ZeroDivisionError):
        element(func=lambda u, v: u * v * (1 / 0))


@pytest.mark.parametrize(
    "form",
    [
        lambda u, v, x: u * v if x[0] > 0.5 else 2 * u * v,
        lambda u, v, x: u * v * float(x[0]),
        lambda u, v, x: u * v * x[0].item(),
    ],
)
def test_forms_that_read_a_value_are_told_what_to_write(element, form):
    with pytest.raises(FormError, match=r"<lambda> needs the value of a tensor.*torch\.where"):
        element(func=form)


def test_lengths_are_checked(mesh, element, node):
    n, n_cells = mesh.n_points, mesh.n_elements
    with pytest.raises(ValueError, match=rf"point_data\['w'\].*{n}"):
        element(point_data={"w": torch.ones(n + 1)})
    with pytest.raises(ValueError, match=rf"point_data\['w'\].*{n}"):
        node(point_data={"w": torch.tensor(1.0)})
    with pytest.raises(ValueError, match=rf"element_data\['c'\].*{n_cells}"):
        element(element_data={"c": torch.ones(n_cells - 1)})


@pytest.mark.parametrize("value", ["steel", object(), {"a": 1.0}, [[1.0], [2.0, 3.0]]])
def test_data_that_are_no_numbers_are_refused(element, value):
    with pytest.raises(TypeError, match="c must be a tensor or a number"):
        element(func=lambda u, v, c: u * v, scalar_data={"c": value})


def test_forward_must_be_defined(mesh):
    class Nothing(ElementAssembler):
        pass

    class NothingEither(NodeAssembler):
        pass

    for family in (Nothing, NothingEither):
        with pytest.raises((NotImplementedError, ValueError)):
            family.from_mesh(mesh)()


@pytest.mark.parametrize("family", [MassElementAssembler, const_node_assembler()])
def test_construction_is_checked(mesh, family):
    with pytest.raises(ValueError, match="quadrature_order"):
        family.from_mesh(mesh, quadrature_order=0)
    with pytest.raises(ValueError, match="project"):
        family.from_mesh(mesh, project="scatter")
    with pytest.raises(TypeError, match="colour"):
        family.from_mesh(mesh, colour="red")
    with pytest.raises(ValueError, match="no cells"):
        family.from_mesh(Mesh.from_arrays(torch.rand(3, 2), {}))
    with pytest.raises(TypeError, match=r"must be a Mesh, got list.*distributed"):
        family.from_mesh([mesh])


def test_from_assembler_needs_one_of_the_same_family(element, node):
    with pytest.raises(TypeError, match="needs a ElementAssembler"):
        MassElementAssembler.from_assembler(node)
    with pytest.raises(TypeError, match="needs a NodeAssembler"):
        const_node_assembler().from_assembler(element)


def test_projects_give_the_same(mesh):
    a, b = (MassElementAssembler.from_mesh(mesh, project=p)() for p in ("reduce", "sparse"))
    assert torch.equal(a.values, b.values)


# -- geometry ------------------------------------------------------------------------------------


def test_lines_in_one_dimension():
    points = torch.tensor([[0.0], [0.5], [2.0]], dtype=f64)
    mesh = Mesh.from_arrays(points, {"line": torch.tensor([[0, 1], [1, 2]])})
    K = LaplaceElementAssembler.from_mesh(mesh)().to_dense()
    M = MassElementAssembler.from_mesh(mesh)().to_dense()
    a, b = 1 / 0.5, 1 / 1.5
    assert torch.allclose(K, torch.tensor([[a, -a, 0], [-a, a + b, -b], [0, -b, b]], dtype=f64))
    exact = torch.tensor([[1.0, 0.5, 0], [0.5, 4, 1.5], [0, 1.5, 3]], dtype=f64) / 6
    assert torch.allclose(M, exact)


@pytest.mark.parametrize("kind", ["triangle", "quad", "triangle6", "quad9"])
def test_surfaces_in_space(kind):
    # The unit square on the plane z = x + 2 y: its area is sqrt(6).
    """known-faults | 12: a triangle in space keeps its z.

    features | surfaces in space: serial.
    """
    flat = bulged(filled(kind))
    x, y = flat.points.T
    mesh = Mesh.from_arrays(torch.stack([x, y, x + 2 * y], 1), flat.cells.to_dict())
    M = MassElementAssembler.from_mesh(mesh)()
    area = 6**0.5
    assert float(M.values.sum()) == pytest.approx(area, rel=1e-12)
    # Laplace-Beltrami energy of a . x: |a|^2 less its part along the unit normal (1, 2, -1)/sqrt 6.
    a = torch.tensor([1.0, -1.0, 0.5], dtype=f64)
    u = mesh.points @ a
    normal = torch.tensor([1.0, 2.0, -1.0], dtype=f64) / area
    K = LaplaceElementAssembler.from_mesh(mesh)()
    energy = float(a @ a - (a @ normal) ** 2) * area
    assert float(u @ (K @ u)) == pytest.approx(energy, rel=1e-12)
    assert (K @ torch.ones_like(u)).abs().max() < 1e-13


def test_lines_in_space_have_their_length():
    points = torch.tensor([[0, 0, 0], [3, 4, 0], [3, 4, 12]], dtype=f64)
    mesh = Mesh.from_arrays(points, {"line": torch.tensor([[0, 1], [1, 2]])})
    assert float(MassElementAssembler.from_mesh(mesh)().values.sum()) == pytest.approx(17.0)


def test_curved_surface_has_its_area():
    # A cylinder of radius and height 1; quadratics through points of a circle are off by h^4.
    def error(n):
        flat = filled("quad9", n)  # n + 1 cells along x
        angle, z = 2 * torch.pi * flat.points[:, 0], flat.points[:, 1]
        points = torch.stack([torch.cos(angle), torch.sin(angle), z], 1)
        mesh = Mesh.from_arrays(points, flat.cells.to_dict())
        M = MassElementAssembler.from_mesh(mesh, quadrature_order=8)()
        return abs(float(M.values.sum()) / (2 * torch.pi) - 1)

    assert error(8) < 1e-3
    assert math.log2(error(8) / error(17)) == pytest.approx(4, abs=0.1)


@pytest.mark.parametrize("kind", ["triangle", "quad9", "tetra", "pyramid"])
def test_place_of_the_mesh_does_not_matter(kind):
    mesh = filled(kind)
    points = (mesh.points * 64).round() / 64  # so that moving it by a power of two rounds nothing
    near = LaplaceElementAssembler.from_mesh(Mesh.from_arrays(points, mesh.cells.to_dict()))()
    far = Mesh.from_arrays(points + 2**30, mesh.cells.to_dict())
    assert torch.equal(LaplaceElementAssembler.from_mesh(far)().values, near.values)


def test_inverted_cells_count_as_their_mirror_images():
    """known-faults | 18: inverted cells are accepted."""
    mesh = filled("tetra")
    flipped = Mesh.from_arrays(mesh.points, {"tetra": mesh.cells["tetra"][:, [0, 2, 1, 3]]})
    K = LaplaceElementAssembler.from_mesh(mesh)().to_dense()
    assert torch.allclose(LaplaceElementAssembler.from_mesh(flipped)().to_dense(), K)


@pytest.mark.parametrize("kind", ["triangle", "quad", "tetra", "wedge18"])
def test_degenerate_cell_is_named(kind):
    """known-faults | 18: a zero-volume cell is named by its number."""
    mesh = distorted(kind)
    cells = mesh.cells[kind].clone()
    points = torch.cat([mesh.points, mesh.points[cells[-1, :1]].expand(cells.shape[1], -1)])
    flat = torch.arange(mesh.n_points, len(points)).unsqueeze(0)
    broken = Mesh.from_arrays(points, {kind: torch.cat([cells, flat])})
    with pytest.raises(ValueError, match=rf"1 cells.*{kind}.*cell {len(cells)}\)"):
        MassElementAssembler.from_mesh(broken)()


@pytest.mark.parametrize("kind", ["triangle", "quad", "tetra", "wedge18"])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_points_that_are_no_numbers_are_refused_in_a_call(kind, bad):
    mesh = distorted(kind)
    points = mesh.points.clone()
    points[mesh.cells[kind][2, 0], 0] = bad
    with pytest.raises(ValueError, match="not finite"):
        MassElementAssembler.from_mesh(mesh)(points=points)


def test_quad_in_file_order_has_its_area_and_a_crossed_one_is_refused():
    """known-faults | 4: a quad in file order has its area."""
    points = torch.tensor([[0, 0], [1, 0], [1, 1], [0, 1]], dtype=f64)
    mesh = Mesh.from_arrays(points, {"quad": torch.tensor([[0, 1, 2, 3]])})
    assert float(MassElementAssembler.from_mesh(mesh)().values.sum()) == pytest.approx(1.0)
    crossed = Mesh.from_arrays(points, {"quad": torch.tensor([[0, 1, 3, 2]])})
    with pytest.raises(ValueError, match=r"fold over \(first: cell 0\)"):
        MassElementAssembler.from_mesh(crossed)()


def test_points_without_cells_have_empty_rows():
    mesh = gen_rectangle(n=(2, 2))
    points = torch.cat([torch.full((1, 2), 7.0, dtype=f64), mesh.points])
    with_orphan = Mesh.from_arrays(points, {"triangle": mesh.cells["triangle"] + 1})
    M = MassElementAssembler.from_mesh(with_orphan)()
    assert M.shape == (10, 10)
    assert not ((M.row == 0) | (M.col == 0)).any()
    inner = M.to_dense()[1:, 1:]
    assert torch.equal(inner, MassElementAssembler.from_mesh(mesh)().to_dense())
    f = const_node_assembler().from_mesh(with_orphan)()
    assert float(f[0]) == 0
    assert float(f.sum()) == pytest.approx(1.0)
