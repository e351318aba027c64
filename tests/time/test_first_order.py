"""`ThetaMethod`: orders, laws, and Dirichlet values that move."""

import math
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor

import tensormesh as tm
from tensormesh.time import ThetaMethod

f64 = torch.float64


def square(n: int = 6) -> tuple[tm.Mesh, Any, Any]:
    mesh = tm.Mesh.gen_rectangle(n=(n, n)).double()
    M = tm.MassElementAssembler.from_mesh(mesh)()
    return mesh, M, tm.LaplaceElementAssembler.from_mesh(mesh)()


def errors(theta: float) -> list[float]:
    """Against the exact solution of the semi-discrete problem, by its eigenvectors."""
    mesh, M, K = square(4)
    held = tm.Condenser(mesh.boundary_mask)
    m, k = (held(A)[0].to_dense() for A in (M, K))
    L = torch.linalg.cholesky(m)
    L_inv = torch.linalg.inv(L)
    w, V = torch.linalg.eigh(L_inv @ k @ L_inv.T)
    x = mesh.points
    u0 = (x * (1 - x)).prod(1) * (1 + x[:, 0])
    end = 0.1
    exact = held.recover(L_inv.T @ V @ (torch.exp(-w * end) * (V.T @ L.T @ held.restrict(u0))))
    found = []
    for n_steps in (20, 40, 80):
        scheme, u = ThetaMethod(M, K, end / n_steps, theta, condenser=held), u0
        for _ in range(n_steps):
            u = scheme.step(u)
        found.append(float((u - exact).norm()))
    return found


@pytest.mark.parametrize(("theta", "order"), [(1.0, 1), (0.5, 2)])
def test_order(theta: float, order: int) -> None:
    """features | ThetaMethod: serial."""
    found = errors(theta)
    for coarse, fine in pairwise(found):
        assert math.log2(coarse / fine) == pytest.approx(order, abs=0.1)


@pytest.mark.parametrize("theta", [0.5, 1.0])
def test_balance_of_energy(theta: float) -> None:
    """``|u|^2`` falls, by what the step dissipates and does not get from the load."""
    mesh, M, K = square()
    scheme = ThetaMethod(M, K, 0.03, theta, condenser=tm.Condenser(mesh.boundary_mask))
    u = torch.sin(7 * mesh.points[:, 0]) * (~mesh.boundary_mask)
    f = M @ torch.cos(mesh.points[:, 1])
    for share in (0.0, 0.0, 1.0, 2.0):
        new = scheme.step(u, share * f, (share + 0.5) * f * (share > 0))
        middle = (1 - theta) * u + theta * new
        load = (1 - theta) * share * f + theta * (share + 0.5) * f * (share > 0)
        gain = (new @ (M @ new) - u @ (M @ u)) / 2
        balance = gain + (theta - 0.5) * (new - u) @ (M @ (new - u))
        expected = 0.03 * (middle @ load - middle @ (K @ middle))
        assert float(balance - expected) == pytest.approx(0, abs=1e-15)
        assert share > 0 or float(gain) < 0
        u = new


def test_prescribed_values_that_move() -> None:
    """``u = x + t`` and ``u = x t`` are met exactly, as they are linear in both."""
    mesh, M, K = square()
    x, held = mesh.points[:, 0], tm.Condenser(mesh.boundary_mask)

    def rest(scheme: ThetaMethod, solution: Any, load: Tensor) -> float:
        u, worst = solution(0.0), 0.0
        for step in range(1, 4):
            u = scheme.step(u, load, prescribed=solution(step * scheme.dt))
            worst = max(worst, float((u - solution(step * scheme.dt)).abs().max()))
        return worst

    for theta in (0.5, 1.0):
        scheme = ThetaMethod(M, K, 0.1, theta, condenser=held)
        assert rest(scheme, lambda t: x + t, M @ torch.ones_like(x)) < 1e-14
        assert rest(scheme, lambda t: x * t, M @ x) < 1e-14


def test_steps_are_differentiable() -> None:
    """features | ThetaMethod: differentiable."""
    mesh, M, K = square(3)
    held = tm.Condenser(mesh.boundary_mask)

    def end(k: Tensor, u: Tensor, g: Tensor) -> Tensor:
        scheme = ThetaMethod(M, K * k, 0.1, condenser=held)
        for _ in range(2):
            u = scheme.step(u, prescribed=g)
        return u

    k = torch.tensor(0.7, dtype=f64)
    inputs = (k, torch.sin(mesh.points[:, 0]), mesh.points[:, 1] ** 2)
    assert torch.autograd.gradcheck(end, [x.requires_grad_() for x in inputs])


def test_wrong_arguments_are_refused() -> None:
    _, M, K = square(2)
    with pytest.raises(ValueError, match="dt must be positive"):
        ThetaMethod(M, K, 0.0)
    with pytest.raises(ValueError, match="theta"):
        ThetaMethod(M, K, 0.1, 1.5)
    u = torch.ones(M.shape[0], dtype=f64)
    with pytest.raises(ValueError, match="no condenser"):
        ThetaMethod(M, K, 0.1).step(u, prescribed=u)
