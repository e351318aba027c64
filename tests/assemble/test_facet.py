"""Integrals over facets: which facets, their measure and their normals."""

import pytest
import torch

from tensormesh.assemble import FacetAssembler, FormError, NodeAssembler
from tensormesh.element.cell_type import cell_type
from tensormesh.mesh.generators import gen_cube, gen_rectangle
from tensormesh.mesh.mesh import Mesh
from tests.assemble.meshes import (
    CELL_TYPES,
    SHEAR_VOLUME,
    bulged,
    distorted,
    filled,
    mixed,
    raised,
    sheared,
)

f64 = torch.float64


class Measure(FacetAssembler):
    def forward(self, v):
        return v


class Flux(FacetAssembler):
    """Flux of x; by the divergence theorem, D times the volume."""

    def forward(self, v, x, n):
        return (x @ n) * v


class Normal(FacetAssembler):
    def forward(self, v, n):
        return v[:, None] * n


def of_unknown(f, mesh):
    return f.view(mesh.n_points, -1)


# -- which facets --------------------------------------------------------------------------------


def l_shape():
    points = torch.tensor(
        [[0, 0], [1, 0], [2, 0], [0, 1], [1, 1], [2, 1], [0, 2], [1, 2]], dtype=f64
    )
    squares = [[0, 1, 4, 3], [1, 2, 5, 4], [3, 4, 7, 6]]
    cells = [half for a, b, c, d in squares for half in ([a, b, c], [a, c, d])]
    return Mesh.from_arrays(points / 2, {"triangle": torch.tensor(cells)})


@pytest.mark.parametrize(
    ("mesh", "measure"),
    [
        (gen_cube(n=(1, 1, 1)), 6),  # every node is on the boundary, inner facets are not
        (gen_cube(n=(2, 3, 2)), 6),
        (gen_rectangle(n=(1, 1)), 4),
        (l_shape(), 4),
        (mixed(), 4),
        (gen_rectangle(n=(3, 2), order=2), 4),
        (gen_cube(n=(2, 2, 2), order=2, element_type="hex"), 6),
        (gen_cube(n=(2, 2, 2), order=2, element_type="wedge"), 6),
    ],
)
def test_boundary_has_its_measure(mesh, measure):
    """known-faults | 2: the boundary has its measure, facets are not chosen by nodes."""
    assert float(Measure.from_mesh(mesh)().sum()) == pytest.approx(measure, rel=1e-13)


@pytest.mark.parametrize("kind", CELL_TYPES)
@pytest.mark.parametrize("make", [filled, distorted])
def test_divergence_theorem(kind, make):
    """features | FacetAssembler: serial."""
    mesh = make(kind)
    volume = SHEAR_VOLUME[mesh.dim] if make is distorted else 1.0
    degree = 2 + 2 * cell_type(kind).order
    flux = Flux.from_mesh(mesh, quadrature_order=degree)()
    assert float(flux.sum()) == pytest.approx(mesh.dim * volume, rel=1e-12)
    closed = of_unknown(Normal.from_mesh(mesh, quadrature_order=degree)(), mesh).sum(0)
    assert closed.abs().max() < 1e-13


@pytest.mark.parametrize("kind", [k for k in CELL_TYPES if cell_type(k).dim > 1])
def test_divergence_theorem_on_each_curved_cell_alone(kind):
    # On a mesh, inner facets would never be looked at; as a mesh of its own a cell shows them.
    mesh = bulged(filled(kind))
    cells = mesh.cells[kind]

    class Volume(NodeAssembler):
        def forward(self, v):
            return v

    for cell in (cells[0], cells[len(cells) // 2], cells[-1]):
        alone = Mesh.from_arrays(mesh.points, {kind: cell.unsqueeze(0)})
        volume = float(Volume.from_mesh(alone, 8)().sum())
        flux = float(Flux.from_mesh(alone, quadrature_order=8)().sum())
        assert flux == pytest.approx(mesh.dim * volume, rel=1e-12)


def test_weighted_divergence_theorem_with_fields():
    # int_boundary w t . n = int grad w . t + w div t, with w = x y and t = (x, y^2).
    mesh = sheared(filled("triangle6"))
    x, y = mesh.points.T

    class Outflow(FacetAssembler):
        def forward(self, v, w, t, n):
            return w * (t @ n) * v

    class Inside(NodeAssembler):
        def forward(self, v, w, t, gradw, gradt):
            return (gradw @ t + w * torch.trace(gradt)) * v

    data = {"w": x * y, "t": torch.stack([x, y**2], 1)}
    outflow = Outflow.from_mesh(mesh, quadrature_order=8)(point_data=data).sum()
    inside = Inside.from_mesh(mesh, quadrature_order=8)(point_data=data).sum()
    assert float(outflow) == pytest.approx(float(inside), rel=1e-12)


def test_ends_of_a_line():
    mesh = filled("line3")
    f = Measure.from_mesh(mesh)()
    ends = mesh.topological_boundary_mask()
    assert torch.allclose(f, ends.to(f64), atol=1e-15)
    n = Normal.from_mesh(mesh)()
    assert float(mesh.points.flatten() @ n) == pytest.approx(1.0)
    assert float(n.sum()) == pytest.approx(0.0, abs=1e-15)


def test_rim_of_a_surface():
    # The unit square on the plane z = x: its rim measures 2 + 2 sqrt 2, normals lie in the plane.
    flat = filled("triangle")
    x, y = flat.points.T
    mesh = Mesh.from_arrays(torch.stack([x, y, x], 1), flat.cells.to_dict())
    assert float(Measure.from_mesh(mesh)().sum()) == pytest.approx(2 + 2 * 2**0.5)

    class Across(FacetAssembler):
        def forward(self, v, n):
            return (n[0] - n[2]).abs() * v

    assert Across.from_mesh(mesh)().abs().max() < 1e-14
    assert float(Flux.from_mesh(mesh)().sum()) == pytest.approx(2 * 2**0.5)  # 2 x area


# -- choosing facets -----------------------------------------------------------------------------


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("element_type", ["tri", "quad", "mixed"])
def test_sides_by_group_by_key_and_by_mask(element_type, order):
    mesh = gen_rectangle(n=(4, 2), order=order, element_type=element_type, right=3.0)
    by_group = Measure.from_mesh(mesh, "left")()
    assert float(by_group.sum()) == pytest.approx(1.0)
    assert not by_group[mesh.points[:, 0] > 1].any()
    by_key = Measure.from_mesh(mesh, "is_left_boundary")()
    by_mask = Measure.from_mesh(mesh, mesh.points[:, 0] == 0)()
    assert torch.equal(by_key, by_group)
    assert torch.equal(by_mask, by_group)
    bottom = Measure.from_mesh(mesh, boundary_mask="bottom")()
    assert float(bottom.sum()) == pytest.approx(3.0)


def test_traction_on_a_side_adds_up_to_the_force():
    mesh = gen_cube(n=(2, 2, 2), order=2, element_type="hex")
    t = torch.tensor([0.0, 2.0, -5.0], dtype=f64)

    class Traction(FacetAssembler):
        def forward(self, v, t):
            return v[:, None] * t

    f = of_unknown(Traction.from_mesh(mesh, "right")(scalar_data={"t": t}), mesh)
    assert torch.allclose(f.sum(0), t)
    assert f[mesh.points[:, 0] < 1].abs().max() < 1e-15
    # Q2 on a square: corner, edge and centre weights are products of Simpson's 1/6, 4/6, 1/6.
    centre = ((mesh.points - torch.tensor([1.0, 0.25, 0.25])).abs() < 1e-9).all(1)
    assert torch.allclose(f[centre] / t.where(t != 0, 1), (4 / 6) ** 2 / 4 * (t != 0).to(f64))


def test_mask_takes_facets_all_of_whose_nodes_are_flagged():
    mesh = gen_rectangle(n=(2, 2), order=2)
    mask = mesh.points[:, 0] == 0
    mask[(mesh.points == torch.tensor([0.0, 0.25])).all(1)] = False  # one mid-node
    assert float(Measure.from_mesh(mesh, mask)().sum()) == pytest.approx(0.5)
    assert not Measure.from_mesh(mesh, torch.zeros_like(mask))().any()
    everything = Measure.from_mesh(mesh, torch.ones_like(mask))()
    assert float(everything.sum()) == pytest.approx(4.0)


def test_group_of_inner_facets_counts_each_once():
    mesh = gen_rectangle(n=(2, 2), element_type="quad")
    x, y = mesh.points.T
    column = torch.nonzero(x == 0.5).flatten()
    column = column[y[column].argsort()]
    lines = torch.stack([column[:-1], column[1:]], 1)
    inner = Mesh.from_arrays(
        mesh.points,
        {"quad": mesh.cells["quad"], "line": lines},
        cell_sets={"crack": {"line": torch.arange(2)}},
    )
    assert float(Measure.from_mesh(inner, "crack")().sum()) == pytest.approx(1.0)
    n = of_unknown(Normal.from_mesh(inner, "crack")(), inner).sum(0)
    assert n.abs().tolist() == pytest.approx([1.0, 0.0], abs=1e-15)


def test_wrong_names_list_what_there_is():
    mesh = gen_rectangle(n=(2, 2))
    with pytest.raises(KeyError, match=r"'inlet'.*'left'.*'right'.*'bottom'.*'top'"):
        Measure.from_mesh(mesh, "inlet")


@pytest.mark.parametrize(
    ("mask", "error", "words"),
    [
        (torch.ones(3, dtype=torch.bool), ValueError, "9 points"),
        (torch.ones(9), TypeError, "float32"),
        (torch.ones(9, dtype=torch.int64), TypeError, "int64"),
        (7, TypeError, "int"),
    ],
)
def test_wrong_masks_are_refused(mask, error, words):
    with pytest.raises(error, match=words):
        Measure.from_mesh(gen_rectangle(n=(2, 2)), mask)


def test_group_of_cells_is_no_group_of_facets():
    mesh = gen_rectangle(n=(2, 2))
    mesh = Mesh.from_arrays(
        mesh.points, mesh.cells.to_dict(), cell_sets={"half": {"triangle": torch.arange(4)}}
    )
    with pytest.raises(ValueError, match="dimension 1"):
        Measure.from_mesh(mesh, "half")


# -- forms ---------------------------------------------------------------------------------------


def test_trial_names_are_test_names():
    form = Measure.from_mesh(distorted("quad"))
    a, b = (
        form(func=lambda u, gradu, n: u + gradu @ n),
        form(func=lambda v, gradv, n: v + gradv @ n),
    )
    assert torch.equal(a, b)


def test_gradient_of_the_whole_cell_is_seen():
    # int_boundary dv/dn for v = x^2 on Q2 is the integral of its Laplacian, 2.
    mesh = filled("quad9")
    f = Measure.from_mesh(mesh)(func=lambda gradv, n: gradv @ n)
    assert float(mesh.points[:, 0] ** 2 @ f) == pytest.approx(2.0)


def test_fields_constants_and_values_per_cell():
    mesh = mixed()
    c = {"quad": torch.full((len(mesh.cells["quad"]),), 3.0, dtype=f64)}
    c["triangle"] = torch.full((len(mesh.cells["triangle"]),), 5.0, dtype=f64)
    f = Measure.from_mesh(mesh)(
        func=lambda v, c, k, w, gradw, gradx: c * k * w * gradw[0] * gradx[1, 1] * v,
        point_data={"w": mesh.points[:, 0]},
        scalar_data={"k": 2.0},
        element_data={"c": c},
    )
    # Around the left half int x = 2 * 1/8, around the right 1 + 2 * 3/8, without the inner line.
    assert float(f.sum()) == pytest.approx(2 * (3 * 0.25 + 5 * 1.75))


def test_a_field_called_n_is_not_overwritten():
    mesh = gen_rectangle(n=(2, 2))
    f = Measure.from_mesh(mesh)(
        func=lambda v, n: n * v, point_data={"n": torch.full((9,), 2.0, dtype=f64)}
    )
    assert float(f.sum()) == pytest.approx(8.0)


@pytest.mark.parametrize(
    ("form", "words"),
    [
        (lambda v: v.sum(), r"\[B\] or a \[B, H\]"),
        (lambda v: torch.ones(5, dtype=f64), "basis axis"),
        (lambda v: v[:, None, None] * torch.ones(2, 2, dtype=f64), r"\[B\] or a \[B, H\]"),
        (lambda v: 1.0, "float"),
        (lambda x: x[0], "needs one of v"),
        (lambda u, v: u * v, "not of both"),
    ],
)
def test_wrong_forms_are_refused(form, words):
    with pytest.raises(FormError, match=words):
        Measure.from_mesh(gen_rectangle(n=(2, 2)))(func=form)


def test_unknown_argument_is_named():
    with pytest.raises(ValueError, match=r"'pressure'.* n"):
        Measure.from_mesh(gen_rectangle(n=(2, 2)))(func=lambda v, pressure: pressure * v)


def test_degenerate_cell_is_named_by_its_number():
    mesh = filled("triangle", 3)
    points = mesh.points.clone()
    cells = mesh.cells["triangle"]
    on_boundary, _ = mesh.boundary_facets()["triangle"]
    last = int(on_boundary.max())
    assert last > len(on_boundary)  # so that a position among the facets would be another number
    points = torch.cat([points, points[cells[last]].mean(0, keepdim=True).expand(3, 2)])
    cells = cells.clone()
    cells[last] = torch.arange(len(points) - 3, len(points))
    broken = Mesh.from_arrays(points, {"triangle": cells})
    with pytest.raises(ValueError, match=rf"cell {last}\)"):
        Measure.from_mesh(broken)()


def test_second_order_facets_are_those_of_straight_ones():
    straight = bulged(filled("tetra"))
    curved = raised(straight)

    class Moment(FacetAssembler):
        def forward(self, v, x, n):
            return (x[0] * n[0] + x[1] ** 2 * n[1]) * v

    a, b = (float(Moment.from_mesh(m, quadrature_order=4)().sum()) for m in (straight, curved))
    assert a == pytest.approx(1 + 1)  # int of the divergence 1 + 2 y
    assert b == pytest.approx(a, rel=1e-13)
