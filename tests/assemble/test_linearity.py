"""Forms that no matrix or vector can represent are refused, also the ones that nearly could."""

import pytest
import torch

from tensormesh.assemble import (
    FacetAssembler,
    FormError,
    MassElementAssembler,
    const_node_assembler,
)
from tests.assemble.meshes import filled, mixed

f64 = torch.float64

BILINEAR = {
    "constant": lambda u, v: u * v + 1,
    "linear only in v": lambda u, v: u * v + v,
    "linear only in u": lambda u, v: u * v + u,
    "square of u": lambda u, v: u * u * v,
    "square of v": lambda u, v: u * v**2,
    "small square": lambda u, v: u * v + 1e-6 * u * u * v,
    "|u|": lambda u, v: u.abs() * v,
    "|v|": lambda u, v: u * v.abs(),
    "|u v|": lambda u, v: (u * v).abs(),
    "positive part": lambda gradu, gradv: torch.relu(gradu) @ gradv,
    "norm": lambda gradu, v: gradu.norm() * v,
    "norm of test": lambda u, gradv: gradv.norm() * u,
    "p-Laplace": lambda gradu, gradv: (gradu @ gradu) * (gradu @ gradv),
    "sine": lambda u, v: torch.sin(u) * v,
    "u du/dx": lambda u, gradu, v: u * gradu[0] * v,
    "block with constant": lambda u, v: torch.eye(2, dtype=f64) * u * v + 1e-3,
    "only at some points": lambda u, v, x: u * v + x[0] * u * u * v,
}
LINEAR = {
    "constant": lambda v: v + 1,
    "square": lambda v: v**2,
    "|v|": lambda v: v.abs(),
    "positive part": lambda v: torch.relu(v),
    "product": lambda v, gradv: v * gradv[0],
    "vector with constant": lambda v: torch.stack([v, v + 1]),
}
FACET = {
    "constant": lambda v: v + 1,
    "square": lambda v: v**2,
    "|v|": lambda v: v.abs(),
    "reversed basis": lambda v: v.flip(0),
    "first function for all": lambda v: v[0] * torch.ones_like(v),
    "sum over the basis": lambda v: v.sum() * torch.ones_like(v),
    "product": lambda v, gradv: v * gradv[:, 0],
}


@pytest.mark.parametrize("name", BILINEAR)
@pytest.mark.parametrize("mesh", [filled("quad"), mixed()], ids=["quad", "mixed"])
def test_forms_that_are_not_bilinear(mesh, name):
    with pytest.raises(FormError, match="not linear"):
        MassElementAssembler.from_mesh(mesh)(func=BILINEAR[name])


@pytest.mark.parametrize("name", LINEAR)
def test_forms_that_are_not_linear(name):
    with pytest.raises(FormError, match="not linear"):
        const_node_assembler().from_mesh(filled("triangle"))(func=LINEAR[name])


@pytest.mark.parametrize("name", FACET)
def test_facet_forms_that_are_not_linear_in_each_function(name):
    class Flux(FacetAssembler):
        def forward(self, v):
            return v

    with pytest.raises(FormError, match="not linear"):
        Flux.from_mesh(filled("triangle"))(func=FACET[name])


def test_a_term_that_is_zero_at_first_is_noticed_later():
    class Burgers(MassElementAssembler):
        def forward(self, u, v, c):
            return u * v + c * u * u * v

    form = Burgers.from_mesh(filled("triangle"))
    assert float(form(scalar_data={"c": 0.0}).values.sum()) == pytest.approx(1.0)
    with pytest.raises(FormError, match=r"Burgers\.forward is not linear"):
        form(scalar_data={"c": 1.0})


@pytest.mark.parametrize("dtype", [torch.float32, f64])
@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
def test_linear_forms_of_any_size_are_accepted(dtype, scale):
    mesh = filled("hexahedron")
    mesh = mesh.to(dtype)
    K = MassElementAssembler.from_mesh(mesh)(
        func=lambda u, v, gradu, gradv, x: scale * (torch.exp(x[0]) * u * v + gradu @ gradv / 3)
    )
    assert K.values.isfinite().all()
    assert float(K.values.sum()) == pytest.approx(scale * (torch.e - 1), rel=1e-4)


def test_complex_forms_are_accepted_and_conjugates_refused():
    element = MassElementAssembler.from_mesh(filled("triangle"))
    w = torch.ones(element.n_points, dtype=torch.complex128) * 1j
    K = element(func=lambda u, v, w: w * u * v, point_data={"w": w})
    assert complex(K.values.sum()) == pytest.approx(1j)
    with pytest.raises(FormError):
        element(func=lambda u, v, w: (w * u).abs() * v, point_data={"w": w})
