"""Dtypes follow the mesh; what would lose digits is refused; no call leaves a mark."""

import numpy as np
import pytest
import torch
from torch import nn

from tensormesh.assemble import (
    ElementAssembler,
    FacetAssembler,
    LaplaceElementAssembler,
    MassElementAssembler,
    NodeAssembler,
    const_node_assembler,
    func_node_assembler,
)
from tests.assemble.entries import entries
from tests.assemble.meshes import distorted, filled


class Weighted(ElementAssembler):
    def forward(self, u, v, w):
        return w * u * v


class Load(NodeAssembler):
    def forward(self, v, w):
        return w * v


class Flux(FacetAssembler):
    def forward(self, v, w):
        return w * v


FAMILIES = {"element": Weighted, "node": Load, "facet": Flux}


def result(family, mesh, w):
    return entries(family.from_mesh(mesh)(point_data={"w": w}))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_result_has_the_dtype_of_the_mesh(family, dtype):
    """features | single precision: serial."""
    mesh = distorted("triangle").to(dtype)
    out = result(family, mesh, torch.ones(mesh.n_points, dtype=dtype))
    assert out.dtype == dtype
    exact = result(family, distorted("triangle"), torch.ones(mesh.n_points))
    assert torch.allclose(out.double(), exact, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.float32, torch.int32, torch.int64, torch.bool]
)
@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_narrower_fields_are_promoted(family, dtype):
    """known-faults | 10: float32 fields on a float64 mesh are promoted."""
    mesh = filled("quad")
    w = torch.arange(mesh.n_points).to(dtype)
    out = result(family, mesh, w)
    assert out.dtype == torch.float64
    assert torch.equal(out, result(family, mesh, w.double()))


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize("where", ["point_data", "element_data", "scalar_data"])
def test_wider_data_are_refused(dtype, where):
    mesh = filled("quad").float()
    size = {"point_data": mesh.n_points, "element_data": mesh.n_elements, "scalar_data": 1}[where]
    with pytest.raises(TypeError, match=rf"w is {dtype} on a torch\.float32 mesh"):
        Weighted.from_mesh(mesh)(**{where: {"w": torch.ones(size, dtype=dtype).squeeze()}})


@pytest.mark.parametrize(
    ("mesh_dtype", "dtype"),
    [
        (torch.float64, torch.complex128),
        (torch.float64, torch.complex64),
        (torch.float32, torch.complex64),
    ],
)
@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_complex_fields_give_complex_results(family, mesh_dtype, dtype):
    """known-faults | 10: complex fields give complex results.

    features | complex forms: serial.
    """
    mesh = filled("triangle6").to(mesh_dtype)
    w = torch.complex(torch.ones(mesh.n_points), 2 * torch.ones(mesh.n_points)).to(dtype)
    out = result(family, mesh, w)
    assert out.dtype == mesh_dtype.to_complex()
    one = result(family, mesh, torch.ones(mesh.n_points))
    assert torch.allclose(out.real, one, atol=1e-6)
    assert torch.allclose(out.imag, 2 * one, atol=1e-6)


def test_complex_gradient_coefficients():
    # (1 + 2i) grad u . grad v on an anisotropic complex tensor, against its parts.
    mesh = distorted("tetra")
    A = torch.eye(3) + 1j * torch.diag(torch.tensor([1.0, 2.0, 3.0]))
    K = LaplaceElementAssembler.from_mesh(mesh)(
        func=lambda gradu, gradv, A: gradv.to(A.dtype) @ A @ gradu.to(A.dtype), scalar_data={"A": A}
    )
    x = mesh.points.to(torch.complex128)
    energy = torch.stack([x[:, i] @ (K @ x[:, i]) for i in range(3)]) / 1.5
    assert torch.allclose(energy, torch.tensor([1 + 1j, 1 + 2j, 1 + 3j], dtype=torch.complex128))


def test_numpy_data_are_taken_with_their_dtype():
    mesh = filled("quad")
    w = np.linspace(0, 1, mesh.n_points)
    assert torch.equal(result(Weighted, mesh, w), result(Weighted, mesh, torch.from_numpy(w)))
    with pytest.raises(TypeError, match=r"float64 on a torch\.float32 mesh"):
        result(Weighted, mesh.float(), w)


def test_a_call_leaves_no_mark_on_later_results():
    """known-faults | 10: a float32 call leaves later results unchanged to the bit."""
    mesh = distorted("hexahedron")
    form = Weighted.from_mesh(mesh)
    w = torch.rand(mesh.n_points, dtype=torch.float64)
    first = form(point_data={"w": w}).values
    form(point_data={"w": w.float()})
    form(point_data={"w": w.to(torch.complex64)})
    form(points=mesh.points.float(), point_data={"w": w.float()})
    again = form(points=mesh.points, point_data={"w": w}).values
    assert again.dtype == torch.float64
    assert torch.equal(first, again)


@pytest.mark.parametrize(
    "convert",
    [
        lambda a: a.float(),
        lambda a: a.to(torch.float32),
        lambda a: a.type(torch.float32),
    ],
    ids=["float", "to", "type"],
)
@pytest.mark.parametrize("kind", ["element", "node", "facet"])
def test_assembler_converts_itself_and_not_the_mesh(kind, convert):
    mesh = filled("triangle6")
    form = FAMILIES[kind].from_mesh(mesh)
    other = FAMILIES[kind].from_mesh(mesh)
    assert convert(form) is form
    assert (form.dtype, other.dtype, mesh.dtype) == (torch.float32, torch.float64, torch.float64)
    out = form(point_data={"w": torch.ones(mesh.n_points)})
    assert entries(out).dtype == torch.float32
    out = form.double()(point_data={"w": torch.ones(mesh.n_points)})
    assert entries(out).dtype == torch.float64


@pytest.mark.parametrize("dtype", [torch.int64, "torch.FloatTensor"])
def test_type_takes_floating_dtypes(dtype):
    with pytest.raises(TypeError, match="floating-point"):
        MassElementAssembler.from_mesh(filled("quad")).type(dtype)


@pytest.mark.parametrize("c", [2.0, 2, 1.5 - 0.5j, [1.0, -3.0], torch.tensor([0.5, 0.25])])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_constant_load(c, dtype):
    mesh = filled("quad").to(dtype)
    f = const_node_assembler(c).from_mesh(mesh)()
    expected = torch.as_tensor(c)
    assert f.dtype == (dtype.to_complex() if expected.is_complex() else dtype)
    total = f.view(mesh.n_points, -1).sum(0).squeeze()
    assert torch.allclose(total, expected.to(f.dtype).squeeze(), atol=1e-6)
    other = const_node_assembler(c).from_mesh(mesh, c=7.0)()
    assert float(other.sum()) == pytest.approx(7.0, rel=1e-6)


def test_constant_load_follows_its_assembler_and_loses_no_digits():
    mesh = filled("quad")
    c = torch.tensor([1.0, 2.0], dtype=torch.float64)
    form = const_node_assembler(c).from_mesh(mesh)
    assert form.float()().dtype == torch.float32
    with pytest.raises(TypeError, match=r"c is torch\.float64"):
        const_node_assembler(c).from_mesh(mesh.float())


def test_load_from_a_function():
    mesh = filled("tetra10")
    form = func_node_assembler(lambda x: x[0] * x[1])
    assert float(form.from_mesh(mesh, quadrature_order=5)().sum()) == pytest.approx(1 / 4)
    vector = func_node_assembler().from_mesh(mesh)()  # f(x) = x
    assert torch.allclose(vector.view(-1, 3).sum(0), torch.full((3,), 0.5, dtype=torch.float64))
    other = form.from_mesh(mesh, f=lambda x: x[2] ** 2)()
    assert float(other.sum()) == pytest.approx(1 / 3)


def test_parameters_convert_with_the_assembler():
    class Scaled(ElementAssembler):
        def __post_init__(self):
            self.k = nn.Parameter(torch.tensor(2.0, dtype=torch.float64))

        def forward(self, u, v):
            return self.k * u * v

    form = Scaled.from_mesh(filled("quad")).float()
    assert form.k.dtype == torch.float32
    assert form().dtype == torch.float32
    assert [name for name, _ in form.named_parameters()] == ["k"]
