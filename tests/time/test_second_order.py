"""`Newmark` and `GeneralizedAlpha`: orders, energy, damping, Dirichlet values that move."""

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor

import tensormesh as tm
from tensormesh.time import GeneralizedAlpha, Motion, Newmark

f64 = torch.float64


def diagonal(*values: float) -> tm.SparseMatrix:
    place = torch.arange(len(values))
    return tm.SparseMatrix(torch.tensor(values, dtype=f64), place, place, (len(values),) * 2)


def final(scheme: Any, n_steps: int, load: Callable[[float], Tensor], u: Tensor, v: Tensor) -> Any:
    motion = scheme.start(u, v, load(0.0))
    for step in range(n_steps):
        now = step * scheme.dt
        motion = scheme.step(motion, load(now), load(now + scheme.dt))
    return motion


@pytest.mark.parametrize("method", [Newmark, GeneralizedAlpha])
@pytest.mark.parametrize("damping", [None, 0.6])
def test_order_2(method: Any, damping: float | None) -> None:
    """``u'' + c u' + 4 u = f`` with ``u = sin(3 t) + t`` in one unknown, and a second one free.

    features | Newmark, GeneralizedAlpha, Motion: serial.
    """
    c = damping or 0.0

    def load(t: float) -> Tensor:
        force = -9 * math.sin(3 * t) + c * (3 * math.cos(3 * t) + 1) + 4 * (math.sin(3 * t) + t)
        return torch.tensor([force, 0.0], dtype=f64)

    C = None if damping is None else diagonal(damping, 0.0)
    end, errors = 1.5, []
    u, v = torch.tensor([0.0, 1.0], dtype=f64), torch.tensor([4.0, 0.0], dtype=f64)
    for n in (40, 80, 160):
        found = final(method(diagonal(1, 1), diagonal(4, 9), end / n, C), n, load, u, v)
        exact_u = torch.tensor([math.sin(3 * end) + end, math.cos(3 * end)], dtype=f64)
        exact_v = torch.tensor([3 * math.cos(3 * end) + 1, -3 * math.sin(3 * end)], dtype=f64)
        errors.append((float((found.u - exact_u).norm()), float((found.v - exact_v).norm())))
    for coarse, fine in pairwise(errors):
        for one, other in zip(coarse, fine, strict=True):
            assert math.log2(one / other) == pytest.approx(2, abs=0.1)


def body() -> tuple[tm.Mesh, Any, Any, Tensor]:
    mesh = tm.Mesh.gen_rectangle(n=(6, 2)).double()
    K = tm.LinearElasticityElementAssembler.from_mesh(mesh, E=2.0)()

    def mass(u: Tensor, v: Tensor) -> Tensor:
        return u * v * torch.eye(2, dtype=f64)

    M = tm.ElementAssembler.from_mesh(mesh)(func=mass)
    return mesh, M, K, (mesh.points[:, 0] == 0).repeat_interleave(2)


def energy(M: Any, K: Any, motion: Motion) -> float:
    return float(motion.v @ (M @ motion.v) + motion.u @ (K @ motion.u)) / 2


@pytest.mark.parametrize(("method", "options"), [(Newmark, {}), (GeneralizedAlpha, {"rho": 1})])
def test_energy_is_kept(method: Any, options: dict[str, float]) -> None:
    mesh, M, K, held = body()
    scheme = method(M, K, 0.2, condenser=tm.Condenser(held), **options)
    start = (mesh.points * (0.1 * mesh.points[:, :1])).flatten()
    motion = scheme.start(start, torch.zeros_like(start))
    before = energy(M, K, motion)
    for _ in range(50):
        motion = scheme.step(motion)
        assert energy(M, K, motion) == pytest.approx(before, rel=1e-11)
    assert float(motion.v @ (M @ motion.v)) > 0


def test_what_a_step_is_too_long_for_is_damped_by_rho() -> None:
    """Far above ``1 / dt``, each step leaves the share `rho`; a slow motion stays."""
    M, K = diagonal(1, 1), diagonal(1e12, 1e-4)
    one = torch.ones(2, dtype=f64)
    for rho in (0.0, 0.5, 0.9):
        scheme = GeneralizedAlpha(M, K, 1.0, rho=rho)
        motion = scheme.start(one, 0 * one)
        sizes = []
        for _ in range(60):
            motion = scheme.step(motion)
            sizes.append(float(motion.u[0].abs()))
        # A double root decays as n rho^n.
        assert sizes[-1] < max(60 * rho**60 * 1e3, 1e-9)
        assert float(motion.u[1]) == pytest.approx(math.cos(0.6), abs=1e-3)


def test_prescribed_displacements_that_move() -> None:
    """A body carried along with constant acceleration, which both methods meet exactly."""
    mesh, M, K, held = body()
    push = torch.tensor([0.3, -0.2], dtype=f64).repeat(mesh.n_points)
    load = M @ push
    for method in (Newmark, GeneralizedAlpha):
        scheme = method(M, K, 0.1, condenser=tm.Condenser(held))
        motion = Motion(0 * push, 0 * push, push)
        for step in range(1, 5):
            t = step * 0.1
            motion = scheme.step(motion, load, prescribed=push * t**2 / 2)
            torch.testing.assert_close(motion.u, push * t**2 / 2, rtol=0, atol=1e-13)
            torch.testing.assert_close(motion.v, push * t, rtol=0, atol=1e-12)
            torch.testing.assert_close(motion.a, push, rtol=0, atol=1e-10)


def test_wrong_arguments_are_refused() -> None:
    one = diagonal(1.0)
    with pytest.raises(ValueError, match="beta must be positive"):
        Newmark(one, one, 0.1, beta=0.0)
    with pytest.raises(ValueError, match="rho"):
        GeneralizedAlpha(one, one, 0.1, rho=1.5)
    with pytest.raises(ValueError, match="dt"):
        GeneralizedAlpha(one, one, -0.1)
