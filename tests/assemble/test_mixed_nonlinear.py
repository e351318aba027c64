"""Energies and residuals of several fields: derivatives, and solutions that are known."""

import math
from typing import Any, ClassVar

import pytest
import torch
from scipy.optimize import brentq
from torch import Tensor
from torch.autograd import gradcheck

import tensormesh as tm
from tests.assemble.meshes import filled, mixed
from tests.assemble.mixed_nonlinear import (
    BULK,
    REYNOLDS,
    Follower,
    Heated,
    NavierStokes,
    Rubber,
    given,
    kovasznay,
    of_order,
    smooth_state,
    stretched,
)
from tests.assemble.stokes import OSEEN, l2, stokes_data

CASES = [("triangle", 2), ("triangle", 3), ("mixed", 2), ("tetra", 2)]


def raised(kind: str, order: int) -> tm.Mesh:
    return (mixed() if kind == "mixed" else filled(kind, 1)).raised(order)


@pytest.mark.parametrize(("kind", "order"), CASES)
def test_force_and_tangent_are_the_derivatives_of_the_energy(kind: str, order: int) -> None:
    """features | MixedElementAssembler, forces and tangents: serial, differentiable."""
    mesh = raised(kind, order)
    asm = of_order(Heated, mesh.dim, order).from_mesh(mesh)
    x, data = smooth_state(mesh, asm.layout), given(mesh)

    def energy(x: Tensor) -> Tensor:
        return asm.energy(point_data=asm.at_nodes(x), **data)

    def force(x: Tensor) -> Tensor:
        return asm.internal_force(point_data=asm.at_nodes(x), **data)

    expected = torch.autograd.functional.jacobian(energy, x)
    torch.testing.assert_close(force(x), expected, rtol=1e-11, atol=1e-13)
    K = asm.tangent(point_data=asm.at_nodes(x), **data)
    torch.manual_seed(0)
    along = torch.rand_like(x)
    product = torch.autograd.functional.vjp(force, x, along)[1]
    torch.testing.assert_close(K @ along, product, rtol=1e-11, atol=1e-12)
    torch.testing.assert_close(K.T @ along, product, rtol=1e-11, atol=1e-12)  # symmetric
    step = 1e-6 * along
    difference = (energy(x + step) - energy(x - step)) / 2
    assert float(force(x) @ step) == pytest.approx(float(difference), rel=1e-6)


@pytest.mark.parametrize(("kind", "order"), CASES)
@pytest.mark.parametrize("form", [NavierStokes, Follower])
def test_tangent_is_the_derivative_of_the_residual(form: Any, kind: str, order: int) -> None:
    """Also on facets; neither is symmetric.

    features | MixedNodeAssembler, MixedFacetAssembler: serial, differentiable.
    """
    mesh = raised(kind, order)
    asm = of_order(form, mesh.dim, order).from_mesh(mesh)
    x = smooth_state(mesh, asm.layout)
    data = {"scalar_data": {"k": 0.3}} if form is NavierStokes else {}

    def residual(x: Tensor) -> Tensor:
        return asm(point_data=asm.at_nodes(x), **data)

    K = asm.tangent(point_data=asm.at_nodes(x), **data)
    torch.manual_seed(0)
    test, along = torch.rand_like(x), torch.rand_like(x)
    product = torch.autograd.functional.vjp(residual, x, test)[1]
    torch.testing.assert_close(K.T @ test, product, rtol=1e-11, atol=1e-12)
    step = 1e-6 * along
    difference = (residual(x + step) - residual(x - step)) / 2e-6
    torch.testing.assert_close(K @ along, difference, rtol=1e-6, atol=1e-7)
    assert (K.T @ along - K @ along).abs().max() > 1e-3


def test_second_derivatives_agree_with_finite_differences() -> None:
    """Of a force and of a tangent by data and points."""
    mesh = filled("triangle", 1).raised(2)
    asm = of_order(Rubber, 2, 2).from_mesh(mesh)
    x = 0.3 * smooth_state(mesh, asm.layout)
    mu = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    points = mesh.points.clone().requires_grad_()

    def size(mu: Tensor, points: Tensor) -> Tensor:
        data = {"point_data": asm.at_nodes(x), "scalar_data": {"mu": mu}}
        force = asm.internal_force(points, **data)
        return force.square().sum() + (asm.tangent(points, **data) @ x.cos()).square().sum()

    assert gradcheck(size, (mu, points))


def test_a_quadratic_energy_has_the_matrix_of_its_form() -> None:
    mesh = mixed().raised(3)
    form = of_order(OSEEN[2], 2, 3).from_mesh(mesh)

    def density(gradu: Tensor, p: Tensor) -> Tensor:
        return (gradu * gradu).sum() / 2 - p * gradu.trace()

    fields = form.at_nodes(smooth_state(mesh, form.layout))
    K, expected = form.tangent(func=density, point_data=fields), form(**stokes_data(mesh))
    assert K.has_same_layout(expected)
    torch.testing.assert_close(K.values, expected.values, rtol=0, atol=1e-13)


def test_one_vector_field_is_what_an_element_assembler_has() -> None:
    mesh = mixed().raised(2)

    class Body(tm.MixedElementAssembler):
        fields: ClassVar = {"u": tm.Field("v", components=2, order=2)}

    def density(u: Tensor, gradu: Tensor, x: Tensor) -> Tensor:
        return (1 + x[0]) * (gradu * gradu).sum() ** 2 + (u @ u) * gradu[0, 1]

    data = {"func": density, "point_data": {"u": torch.sin(2 * mesh.points)}}
    several, one = Body.from_mesh(mesh), tm.ElementAssembler.from_mesh(mesh)
    assert float(several.energy(**data)) == pytest.approx(float(one.energy(**data)), rel=1e-14)
    for name in ("internal_force", "tangent"):
        found, expected = (getattr(asm, name)(**data) for asm in (several, one))
        if name == "tangent":
            assert found.has_same_layout(expected)
            found, expected = found.values, expected.values
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


# -- solutions ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["triangle", "quad"])
def test_a_stretched_block_of_rubber(kind: str) -> None:
    """The stress across vanishes: two equations for the other stretch and the pressure."""
    mesh, mu, long = filled(kind, 2).raised(2), 0.8, 1.3

    def across(short: float) -> float:
        return mu * (short - 1 / short) + BULK * (long * short - 1) * long

    short = brentq(across, 0.5, 1.5, xtol=1e-14)
    body, z = stretched(
        mesh,
        lambda cls: cls.from_mesh(mesh),
        lambda h: torch.zeros(h * mesh.n_points).double(),
        mu,
        long - 1,
    )
    fields = body.at_nodes(z)
    expected = mesh.points * mesh.points.new_tensor([long - 1, short - 1])
    torch.testing.assert_close(fields["u"], expected, rtol=0, atol=1e-9)
    pressure = torch.full_like(fields["p"], BULK * (long * short - 1))
    torch.testing.assert_close(fields["p"], pressure, rtol=0, atol=1e-7)


def test_derivative_of_a_solution_agrees_with_finite_differences() -> None:
    mesh = filled("triangle", 1).raised(2)

    def size(mu: Tensor) -> Tensor:
        zeros = lambda h: torch.zeros(h * mesh.n_points).double()  # noqa: E731
        body, z = stretched(mesh, lambda cls: cls.from_mesh(mesh), zeros, mu, 0.2)
        return body.at_nodes(z)["p"].square().sum()

    assert gradcheck(size, torch.tensor(0.8, dtype=torch.float64, requires_grad=True))


@pytest.mark.parametrize("kind", ["tri", "quad"])
def test_flow_of_kovasznay_converges_at_its_rates(kind: str) -> None:
    found = []
    for n in (8, 16):
        mesh = tm.Mesh.gen_rectangle(
            n=(n, n), element_type=kind, left=-0.5, right=1.0, bottom=-0.5, top=1.5
        ).raised(2)
        flow = of_order(NavierStokes, 2, 2).from_mesh(mesh, quadrature_order=6)
        u, p = kovasznay(mesh.points)
        corner = torch.arange(mesh.n_points) == int(next(iter(mesh.top_cells().values()))[0, 0])
        layout, k = flow.layout, {"k": 1 / REYNOLDS}
        mask = layout.join({"u": mesh.boundary_mask, "p": corner})
        z, info = tm.newton(
            lambda z: flow(point_data=flow.at_nodes(z), scalar_data=k),  # noqa: B023
            lambda z: flow.tangent(point_data=flow.at_nodes(z), scalar_data=k),  # noqa: B023
            torch.zeros(3 * mesh.n_points, dtype=mesh.dtype),
            condenser=tm.Condenser(mask, layout.join({"u": u, "p": p})),
            return_info=True,
        )
        assert info.iterations < 9
        fields = flow.at_nodes(z)
        found.append(
            (
                l2(mesh, lambda u, x: ((u - kovasznay(x)[0]) ** 2).sum(), u=fields["u"]),
                l2(mesh, lambda p, x: (p - kovasznay(x)[1]) ** 2, p=fields["p"]),
            )
        )
    (u0, p0), (u1, p1) = found
    assert math.log2(u0 / u1) > 2.7
    assert math.log2(p0 / p1) > 1.8


# -- what is refused ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("func", "data", "message"),
    [
        (lambda c: c**2, {"c": 1}, "names none of its fields, u, p"),
        (lambda u, r: u @ u + r, {"u": 2}, "nothing is called 'r'"),
        (lambda u, p: u @ u + p, {"u": 3, "p": 1}, r"point_data\['u'\] .* its field has \[n, 2\]"),
        (lambda u, p: u * p, {"u": 2, "p": 1}, "expected a number"),
    ],
)
def test_energies_that_are_none_are_refused(func: Any, data: Any, message: str) -> None:
    mesh = filled("triangle", 1).raised(2)
    asm = of_order(Rubber, 2, 2).from_mesh(mesh)
    nodal = {k: torch.ones(mesh.n_points, n).squeeze(1).double() for k, n in data.items()}
    for method in (asm.internal_force, asm.tangent):
        with pytest.raises(ValueError, match=message):
            method(func=func, point_data=nodal)


def test_a_field_that_is_no_nodal_data_is_refused() -> None:
    mesh = filled("triangle", 1).raised(2)
    asm = of_order(Rubber, 2, 2).from_mesh(mesh)
    with pytest.raises(tm.FormError, match=r"the field 'p' is not in point_data.*at_nodes\(x\)"):
        asm.tangent(func=lambda p: p**2, scalar_data={"p": 1.0})
    with pytest.raises(NotImplementedError, match="has no energy"):
        of_order(OSEEN[2], 2, 2).from_mesh(mesh).energy()
