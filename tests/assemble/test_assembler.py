"""What an assembler keeps between calls: geometry, pattern, parameters."""

import copy
import gc
import pickle
import weakref

import pytest
import torch
from torch import nn

from tensormesh.assemble import (
    ElementAssembler,
    FacetAssembler,
    LaplaceElementAssembler,
    MassElementAssembler,
    NodeAssembler,
    base,
    const_node_assembler,
    topology,
    workspace,
)
from tensormesh.mesh.generators import gen_rectangle
from tests.assemble.entries import entries
from tests.assemble.meshes import CELL_TYPES, distorted, filled, mixed

f64 = torch.float64


class Boundary(FacetAssembler):
    def forward(self, v):
        return v


class Reaction(ElementAssembler):
    def forward(self, u, v, gradu, gradv, w, c):
        return c * (w * u * v + gradu @ gradv)


# -- points --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["triangle", "quad9", "tetra"])
def test_new_points_are_used_and_stay(kind):
    """known-faults | 1: mass summed again with `points = 2 * points`.

    features | moved points: serial.
    """
    mesh = filled(kind)
    dim = mesh.dim
    mass, load, boundary = (
        MassElementAssembler.from_mesh(mesh),
        const_node_assembler().from_mesh(mesh),
        Boundary.from_mesh(mesh),
    )
    assert float(mass().values.sum()) == pytest.approx(1)
    assert float(load().sum()) == pytest.approx(1)
    assert float(boundary().sum()) == pytest.approx(2 * dim)
    points = 2 * mesh.points
    for _ in range(2):
        assert float(mass(points).values.sum()) == pytest.approx(2**dim)
        assert float(load(points).sum()) == pytest.approx(2**dim)
        assert float(boundary(points).sum()) == pytest.approx(2 * dim * 2 ** (dim - 1))
        points = None
    assert mesh.points.max() == 1


def test_points_changed_in_place_are_seen():
    mesh = filled("quad")
    mass, boundary = MassElementAssembler.from_mesh(mesh), Boundary.from_mesh(mesh)
    assert float(mass().values.sum()) == pytest.approx(1)
    with torch.no_grad():
        mesh.points.mul_(3)
    assert float(mass().values.sum()) == pytest.approx(9)
    assert float(boundary().sum()) == pytest.approx(12)


def test_points_that_come_to_require_gradients_get_them():
    mesh = filled("quad")
    mass = MassElementAssembler.from_mesh(mesh)
    mass()
    mesh.points.requires_grad_()
    (grad,) = torch.autograd.grad(mass().values.sum(), mesh.points)
    # The area grows by the divergence of the motion: x itself gives the dimension.
    assert float((grad * mesh.points.detach()).sum()) == pytest.approx(2.0)


def test_replacing_the_points_of_the_mesh_leaves_earlier_assemblers_alone():
    mesh = filled("quad")
    early = MassElementAssembler.from_mesh(mesh)
    mesh.points = 2 * mesh.points
    late = MassElementAssembler.from_mesh(mesh)
    assert float(early().values.sum()) == pytest.approx(1)
    assert float(late().values.sum()) == pytest.approx(4)
    mesh.float()
    MassElementAssembler.from_mesh(mesh)
    assert early().dtype == f64


def test_wrong_points_are_refused():
    mass = MassElementAssembler.from_mesh(filled("quad"))
    with pytest.raises(ValueError, match="points has shape"):
        mass(points=torch.rand(3, 2))
    with pytest.raises(TypeError, match="points must be a real tensor"):
        mass(points=mass.points.to(torch.complex128))
    with pytest.raises(TypeError, match="list"):
        mass(points=[[0.0, 0.0]])


def test_integer_points_are_converted():
    mesh = gen_rectangle(n=(2, 2), right=2.0, top=2.0)
    mass = MassElementAssembler.from_mesh(mesh)
    assert float(mass(points=3 * mesh.points.to(torch.int64)).values.sum()) == pytest.approx(36)
    assert mass.dtype == f64


def test_works_under_inference_mode():
    with torch.inference_mode():
        mesh = filled("tetra")
        mass = MassElementAssembler.from_mesh(mesh)
        assert float(mass().values.sum()) == pytest.approx(1)
        assert float(mass(points=2 * mesh.points).values.sum()) == pytest.approx(8)
        assert float(Boundary.from_mesh(mesh)().sum()) == pytest.approx(6)


# -- what is shared ------------------------------------------------------------------------------


def test_matrices_of_one_mesh_have_one_pattern():
    """known-faults | 13: matrices of one mesh from two assemblers have one layout."""
    mesh = mixed()
    K, M = LaplaceElementAssembler.from_mesh(mesh)(), MassElementAssembler.from_mesh(mesh)()
    assert K.pattern is M.pattern
    assert K.has_same_layout(M)
    blocks = LaplaceElementAssembler.from_mesh(mesh)
    A, B = (blocks(func=lambda u, v: torch.eye(2, dtype=f64) * u * v) for _ in range(2))
    assert A.pattern is B.pattern


def test_symbolic_part_is_done_once(monkeypatch):
    mesh = filled("tetra")
    calls = []
    original = topology.node_pairs
    monkeypatch.setattr(topology, "node_pairs", lambda *a: (calls.append(1), original(*a))[1])
    for _ in range(3):
        form = MassElementAssembler.from_mesh(mesh)
        form()
        form(points=2 * mesh.points)
        LaplaceElementAssembler.from_assembler(form)()
    assert len(calls) == 1
    mesh.cells["tetra"] = mesh.cells["tetra"][:5]
    M = MassElementAssembler.from_mesh(mesh)()
    assert len(calls) == 2
    assert float(M.values.sum()) == pytest.approx(5 / 48)


def test_geometry_is_kept_from_the_second_call_with_the_same_points_on(monkeypatch):
    mesh = filled("tetra")
    calls = []
    original = workspace.cell_geometry
    monkeypatch.setattr(workspace, "cell_geometry", lambda *a: (calls.append(1), original(*a))[1])
    form = MassElementAssembler.from_mesh(mesh)
    form()
    form()
    assert calls
    calls.clear()
    form()
    LaplaceElementAssembler.from_assembler(form)()
    assert not calls
    form(points=mesh.points.clone())
    assert calls


def test_mesh_can_be_freed():
    mesh = filled("quad")
    MassElementAssembler.from_mesh(mesh)()
    gone = weakref.ref(mesh)
    del mesh
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (MassElementAssembler, LaplaceElementAssembler),
        (const_node_assembler(2.0), const_node_assembler(5.0)),
        (Boundary, Boundary),
    ],
)
def test_from_assembler_equals_from_mesh(first, second):
    mesh = distorted("quad9")
    made = second.from_assembler(first.from_mesh(mesh, quadrature_order=7))
    assert made.quadrature_order == 7
    a, b = made(), second.from_mesh(mesh, quadrature_order=7)()
    assert torch.equal(entries(a), entries(b))


def test_from_assembler_keeps_the_chosen_facets_and_passes_arguments():
    mesh = gen_rectangle(n=(2, 2))

    class Traction(FacetAssembler):
        def __post_init__(self, t):
            self.t = t

        def forward(self, v):
            return self.t * v

    left = Boundary.from_mesh(mesh, "left")
    assert float(Traction.from_assembler(left, t=3.0)().sum()) == pytest.approx(3.0)
    with pytest.raises(TypeError):
        Traction.from_assembler(left)


def test_assemblers_made_from_one_another_move_apart():
    form = MassElementAssembler.from_mesh(filled("quad"))
    other = MassElementAssembler.from_assembler(form)
    other(points=2 * form.points)
    assert float(form().values.sum()) == pytest.approx(1)
    assert float(other().values.sum()) == pytest.approx(4)


@pytest.mark.parametrize("dtype", [torch.float32, f64])
def test_node_assembler_from_elements(dtype):
    mesh = mixed()
    form = const_node_assembler(3.0).from_elements(mesh.points, mesh.top_cells(), dtype=dtype)
    f = form()
    assert f.dtype == dtype
    assert torch.allclose(f.double(), const_node_assembler(3.0).from_mesh(mesh)(), atol=1e-6)
    assert form.element_types == ["quad", "triangle"]


def test_from_elements_makes_float32_by_default_and_takes_int32_cells():
    mesh = filled("triangle")
    cells = {"triangle": mesh.cells["triangle"].to(torch.int32)}
    form = const_node_assembler().from_elements(mesh.points, cells, 3, "cpu", c=2.0)
    assert form().dtype == torch.float32
    assert float(form().sum()) == pytest.approx(2.0)


# -- as modules ----------------------------------------------------------------------------------


class Learned(ElementAssembler):
    def __post_init__(self, k=2.0):
        self.k = nn.Parameter(torch.tensor(k, dtype=f64))
        self.net = nn.Linear(2, 1, dtype=f64)

    def forward(self, gradu, gradv, x):
        return (self.k + self.net(x).squeeze()) * (gradu @ gradv)


def test_parameters_get_gradients():
    """features | parameters of a form: serial."""
    form = Learned.from_mesh(filled("quad"))
    with torch.no_grad():
        form.net.weight.zero_()
        form.net.bias.zero_()
    u = form.points[:, 0]
    (u @ (form() @ u)).backward()  # k + w . x + b, integrated
    assert float(form.k.grad) == pytest.approx(1.0)
    assert float(form.net.bias.grad) == pytest.approx(1.0)
    assert torch.allclose(form.net.weight.grad, torch.full((1, 2), 0.5, dtype=f64))
    form.zero_grad()
    (u @ (form() @ u)).backward()  # a second time, on a graph of its own
    assert float(form.k.grad) == pytest.approx(1.0)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda a: pickle.loads(pickle.dumps(a))])
def test_copies_are_equal_and_independent(copied):
    form = Learned.from_mesh(filled("quad"), k=3.0)
    other = copied(form)
    assert torch.equal(form().values, other().values)
    with torch.no_grad():
        other.k.fill_(7.0)
    other(points=2 * form.points)
    assert form.k.item() == 3.0
    assert float(form.points.max()) == 1.0


def test_facts_and_repr():
    mesh = mixed()
    form = LaplaceElementAssembler.from_mesh(mesh)
    assert (form.n_points, form.dimension, form.dtype) == (mesh.n_points, 2, f64)
    assert form.device == mesh.device
    assert {k: c.shape for k, c in form.elements.items()} == {
        k: c.shape for k, c in mesh.top_cells().items()
    }
    text = repr(form)
    assert f"{mesh.n_points} points" in text
    assert "gradu @ gradv" in text


def test_func_replaces_forward_for_one_call():
    form = MassElementAssembler.from_mesh(filled("quad"))
    assert float(form(func=lambda u, v: 5 * u * v).values.sum()) == pytest.approx(5)
    assert float(form().values.sum()) == pytest.approx(1)


def test_functions_of_one_call_are_not_kept():
    form = MassElementAssembler.from_mesh(filled("quad"))

    def five(u, v):
        return 5 * u * v

    gone = weakref.ref(five)
    form(func=five)
    del five
    gc.collect()
    assert gone() is None


def test_batch_size_changes_roundings_only():
    form = MassElementAssembler.from_mesh(distorted("quad"))
    torch.testing.assert_close(form(batch_size=3).values, form().values, rtol=1e-14, atol=1e-16)


# -- blocks of cells -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", CELL_TYPES)
def test_blocks_of_cells_change_nothing(kind, monkeypatch):
    mesh = distorted(kind)
    data = {
        "point_data": {"w": torch.rand(mesh.n_points, dtype=f64)},
        "element_data": {"c": torch.rand(mesh.n_elements, dtype=f64)},
    }

    class Load(NodeAssembler):
        def forward(self, v, w, c):
            return c * w * v

    form, load = Reaction.from_mesh(mesh), Load.from_mesh(mesh)
    whole, vector = form(**data), load(**data)
    grids = []
    original = base.cells_last
    monkeypatch.setattr(base, "cells_last", lambda *a: (grids.append(a[-1]), original(*a))[1])
    monkeypatch.setattr("tensormesh.assemble.form.BLOCK_NUMBERS", 1)  # one cell a block
    blocks = form(**data)
    assert len(grids) == mesh.n_elements > 1
    assert {n_cells for _, n_cells in grids} == {1}
    assert torch.allclose(blocks.values, whole.values, rtol=1e-13, atol=1e-15)
    assert torch.allclose(load(**data), vector, rtol=1e-13, atol=1e-15)
