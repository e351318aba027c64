"""`newton`: against scikit-fem and closed forms, its order, derivatives and reports."""

import math
import warnings
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck

import tensormesh as tm
from tensormesh.assemble import NeoHookeanModel
from tests.sparse.neo_hookean import NU, E, beam, reference

f64 = torch.float64
LOAD = (0.0, 0.0, -0.004)


def cantilever() -> tuple[tm.Mesh, NeoHookeanModel, Tensor, Tensor]:
    mesh = beam()
    model = NeoHookeanModel.from_mesh(mesh, E=E, nu=NU)
    load = tm.const_node_assembler(torch.tensor(LOAD, dtype=f64)).from_mesh(mesh)()
    return mesh, model, load, (mesh.points[:, 0] == 0).repeat_interleave(3)


def test_a_neo_hookean_cantilever_bends_as_in_scikit_fem() -> None:
    """features | newton: serial."""
    mesh, model, load, held = cantilever()
    condenser, u = tm.Condenser(held), torch.zeros_like(load)
    for share in (0.5, 1.0):
        u, info = tm.newton(
            lambda u, share=share: model.internal_force(u) - share * load,
            model.tangent,
            u,
            condenser=condenser,
            rtol=1e-11,
            return_info=True,
        )
        assert info.converged
    expected = reference(mesh, load.numpy())
    assert float(np.abs(expected).max()) > 0.3  # far from linear: the beam is 1 high
    np.testing.assert_allclose(u.numpy(), expected, rtol=0, atol=1e-9)


def test_convergence_is_quadratic() -> None:
    """Stretched to twice its length in one go, by prescribed values.

    features | NewtonInfo, NewtonStep: serial.
    """
    mesh, model, _, _ = cantilever()
    x = mesh.points
    ends = ((x[:, 0] == 0) | (x[:, 0] == 4)).repeat_interleave(3)
    value = torch.stack([4.0 * (x[:, 0] == 4), 0 * x[:, 0], 0 * x[:, 0]], 1).flatten()
    u, info = tm.newton(
        model.internal_force,
        model.tangent,
        torch.zeros_like(value),
        condenser=tm.Condenser(ends, value),
        rtol=1e-12,
        return_info=True,
    )
    assert torch.equal(u[ends], value[ends])
    assert info.converged
    assert info.reason == "converged"
    assert info.iterations == len(info.steps) <= 6
    assert [step.length for step in info.steps] == [1.0] * info.iterations
    assert [step.linear_iterations for step in info.steps] == [0] * info.iterations
    r = info.residuals
    assert r[-1] == info.residual <= 1e-12 * info.initial
    for before, after in pairwise(r[1:]):
        assert after <= 0.5 * before**2


# -- derivatives of the solution ------------------------------------------------------------------


class Cubic(tm.NodeAssembler):
    """``(k + |grad u|^2) grad u . grad v - s v``."""

    def forward(self, v, gradv, gradu, k, s):
        return (k + gradu @ gradu) * (gradu @ gradv) - s * v


def cubic(n: int = 3) -> tuple[tm.Mesh, Cubic]:
    mesh = tm.Mesh.gen_rectangle(n=(n, n - 1)).double()
    return mesh, Cubic.from_mesh(mesh)


def solved(mesh: tm.Mesh, form: Cubic, k: Tensor, s: Tensor, g: Tensor) -> Tensor:
    def data(u: Tensor, k: Tensor, s: Tensor) -> dict[str, dict[str, Tensor]]:
        return {"point_data": {"u": u, "k": k}, "scalar_data": {"s": s}}

    found: Tensor = tm.newton(
        lambda u, k, s: form(**data(u, k, s)),
        lambda u, k, s: form.tangent(**data(u, k, s), unknown="u"),
        torch.zeros(mesh.n_points, dtype=f64),
        (k, s),
        condenser=tm.Condenser(mesh.boundary_mask, g),
        rtol=1e-13,
    )
    return found


def test_the_solution_has_derivatives_by_parameters_and_prescribed_values() -> None:
    """features | newton: differentiable."""
    mesh, form = cubic()
    k = (1 + mesh.points[:, 0]).requires_grad_()
    s = torch.tensor(0.3, dtype=f64, requires_grad=True)
    g = (mesh.points[:, 1] ** 2).requires_grad_()
    assert gradcheck(lambda k, s, g: solved(mesh, form, k, s, g), (k, s, g))
    (first,) = torch.autograd.grad(solved(mesh, form, k, s, g).sum(), s, create_graph=True)
    with pytest.raises(NotImplementedError, match="first derivatives only"):
        torch.autograd.grad(first, s)


def test_derivatives_where_the_tangent_is_not_symmetric() -> None:
    mesh = tm.Mesh.gen_rectangle(n=(3, 2)).double()
    form = tm.NodeAssembler.from_mesh(mesh)

    def burgers(v: Tensor, gradv: Tensor, u: Tensor, gradu: Tensor, k: Tensor) -> Tensor:
        return k * (gradu @ gradv) + u * gradu[0] * v - v

    def u_of(k: Tensor) -> Tensor:
        def given(u: Tensor, k: Tensor) -> dict[str, object]:
            return {"func": burgers, "point_data": {"u": u}, "scalar_data": {"k": k}}

        found: Tensor = tm.newton(
            lambda u, k: form(**given(u, k)),
            lambda u, k: form.tangent(**given(u, k)),
            torch.zeros(mesh.n_points, dtype=f64),
            (k,),
            condenser=tm.Condenser(mesh.boundary_mask),
            rtol=1e-13,
        )
        return found

    assert gradcheck(u_of, torch.tensor(0.2, dtype=f64, requires_grad=True))


def test_hidden_gradients_are_refused() -> None:
    mesh, form = cubic()
    k = (1 + mesh.points[:, 0]).requires_grad_()

    def data(u: Tensor) -> dict[str, object]:
        return {"point_data": {"u": u, "k": k}, "scalar_data": {"s": 1.0}, "unknown": "u"}

    def residual(u: Tensor) -> Tensor:
        given = data(u)
        del given["unknown"]
        return form(**given)

    u0 = torch.zeros(mesh.n_points, dtype=f64)
    held = tm.Condenser(mesh.boundary_mask)
    with pytest.raises(ValueError, match="not in params"):
        tm.newton(residual, lambda u: form.tangent(**data(u)), u0, condenser=held)
    with torch.no_grad():
        u = tm.newton(residual, lambda u: form.tangent(**data(u)), u0, condenser=held)
    assert not u.requires_grad


# -- reports ---------------------------------------------------------------------------------------


def scalar(function, derivative):
    """Residual and tangent of one equation."""
    return function, lambda u: tm.SparseMatrix.eye(1, dtype=f64) * float(derivative(u))


def at(x: float) -> Tensor:
    return torch.tensor([x], dtype=f64)


def test_the_line_search_reaches_a_root_that_full_steps_overshoot() -> None:
    arctan = scalar(torch.atan, lambda u: 1 / (1 + u**2))
    u, info = tm.newton(*arctan, at(3.0), rtol=1e-12, return_info=True)
    assert abs(u.item()) < 1e-11
    assert min(step.length for step in info.steps) < 1
    options = {"line_search": False, "max_iter": 3, "on_failure": "return", "return_info": True}
    lost, info = tm.newton(*arctan, at(3.0), **options)
    assert info.reason == "maxiter"
    assert abs(lost.item()) > 1e3


def test_what_does_not_converge_says_why() -> None:
    no_root = scalar(lambda u: u**2 + 1, lambda u: 2 * u)
    with pytest.raises(tm.NotConvergedError, match=r"stagnated.*tangent"):
        tm.newton(*no_root, at(0.3), max_iter=500)
    slow = scalar(lambda u: u**9, lambda u: 9 * u**8)
    with pytest.raises(tm.NotConvergedError, match=r"2 iterations.*maxiter"):
        tm.newton(*slow, at(1.0), max_iter=2)
    with pytest.warns(RuntimeWarning, match="raise max_iter"):
        _, info = tm.newton(*slow, at(1.0), max_iter=2, on_failure="warn", return_info=True)
    assert (info.converged, info.reason, info.iterations) == (False, "maxiter", 2)
    assert info.residuals == pytest.approx([1.0, (8 / 9) ** 9, (8 / 9) ** 18])
    broken = scalar(lambda u: torch.log(u), lambda u: 1 / u)
    with pytest.raises(tm.NotConvergedError, match=r"not finite.*smaller steps"):
        tm.newton(*broken, at(-1.0))
    held = tm.Condenser(torch.tensor([True]), at(-1.0))
    done, info = tm.newton(*broken, at(2.0), condenser=held, return_info=True)
    assert (done.item(), info.residual) == (-1.0, 0.0)  # no equation is left


def test_wrong_arguments_are_refused() -> None:
    line = scalar(lambda u: u, lambda u: 1.0)
    for wrong, text in (
        ({"rtol": -1.0}, "rtol"),
        ({"atol": math.nan}, "atol"),
        ({"max_iter": 0}, "max_iter"),
        ({"max_iter": 2.5}, "max_iter"),
        ({"on_failure": "ignore"}, "on_failure"),
    ):
        with pytest.raises(ValueError, match=text):
            tm.newton(*line, at(1.0), **wrong)
    with pytest.raises(TypeError, match="real numbers"):
        tm.newton(*line, at(1.0) + 1j)
    with pytest.raises(ValueError, match="1-D"):
        tm.newton(*line, at(1.0).view(1, 1))
    with pytest.raises(ValueError, match="shape of u0"):
        tm.newton(lambda u: u.sum(), line[1], at(1.0))


def test_a_solution_takes_no_step() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        u, info = tm.newton(*scalar(lambda u: u, lambda u: 1.0), at(0.0), return_info=True)
    assert (u.item(), info.iterations, info.converged) == (0.0, 0, True)


def test_options_of_the_linear_solves() -> None:
    mesh, form = cubic()
    k = 1 + mesh.points[:, 0]
    given = {"point_data": {"k": k}, "scalar_data": {"s": 1.0}}

    def data(u: Tensor) -> dict[str, object]:
        return {**given, "point_data": {"u": u, "k": k}}

    arguments = (
        lambda u: form(**data(u)),
        lambda u: form.tangent(**data(u), unknown="u"),
        torch.zeros(mesh.n_points, dtype=f64),
    )
    held = tm.Condenser(mesh.boundary_mask)
    direct = tm.newton(*arguments, condenser=held, rtol=1e-12)
    options = {"method": "cg", "tol": 1e-13}
    u, info = tm.newton(
        *arguments, condenser=held, rtol=1e-12, return_info=True, solve_options=options
    )
    torch.testing.assert_close(u, direct, rtol=1e-9, atol=1e-12)
    assert all(step.linear_iterations > 0 for step in info.steps)
