"""`newton` and `nonlinear_solve` on ranks: the serial solution, report and derivatives."""

from typing import Any

import pytest
import torch
from torch import Tensor

import tensormesh as tm
from tensormesh.assemble import NeoHookeanModel
from tensormesh.distributed import distributed
from tensormesh.distributed.device_mesh import DeviceMesh
from tests.distributed.cases import METHODS, NOTHING_OWNED, dmesh_of, mesh_of, outcome
from tests.rank_pool import RankPool

SHARP = {"rtol": 1e-12, "max_iter": 50}


class Diffusion(tm.NodeAssembler):
    def forward(self, v, gradv, u, gradu, k, s):
        return (k + u**2) * (gradu @ gradv) - s * v


def symmetric(gradu: Tensor, k: Tensor) -> Tensor:
    """An energy, whose tangent is symmetric."""
    return k * torch.sqrt(1 + gradu @ gradu)


def stretched(mesh: tm.Mesh, on: Any, zeros: Tensor, solve: Any) -> tuple[Tensor, Any]:
    """A neo-Hookean body, pulled by a half of its length, with a dead load."""
    x = mesh.points
    ends = ((x[:, 0] == 0) | (x[:, 0] == 1)).repeat_interleave(x.shape[1])
    value = torch.zeros_like(x)
    value[:, 0] = 0.5 * (x[:, 0] == 1)
    model = on(NeoHookeanModel)
    load = on(tm.const_node_assembler(0.05 * torch.arange(1.0, x.shape[1] + 1, dtype=x.dtype)))()
    return tm.newton(
        lambda u: model.internal_force(u) - load,
        model.tangent,
        zeros,
        condenser=tm.Condenser(ends, value.flatten()),
        rtol=1e-11,
        return_info=True,
        solve_options=solve,
    )


def derivatives(mesh: tm.Mesh, on: Any, zeros: Tensor, total: Any, solve: Any) -> tuple[Any, ...]:
    """A minimal surface: its height, and what it changes by with data and boundary values."""
    k = (1 + mesh.points[:, 0]).requires_grad_()
    g = (mesh.points[:, 1] ** 2).requires_grad_()
    form = on(tm.ElementAssembler)

    def given(u: Tensor, k: Tensor) -> dict[str, Any]:
        return {"func": symmetric, "point_data": {"u": u, "k": k}, "unknown": "u"}

    u = tm.newton(
        lambda u, k: form.internal_force(**given(u, k)),
        lambda u, k: form.tangent(**given(u, k)),
        zeros,
        (k,),
        condenser=tm.Condenser(mesh.boundary_mask, g),
        solve_options=solve,
        **SHARP,
    )
    return (u.detach(), *torch.autograd.grad(total(u**3), (k, g)))


def serial(kind: str) -> tuple[Any, Any, Any]:
    mesh = mesh_of(kind)
    zeros = torch.zeros(mesh.n_points * mesh.dim, dtype=mesh.dtype)
    u, info = stretched(mesh, lambda cls: cls.from_mesh(mesh), zeros, None)
    of = derivatives(mesh, lambda cls: cls.from_mesh(mesh), zeros[: mesh.n_points], torch.sum, None)
    return u, info.residuals, of


def sharded(device_mesh: DeviceMesh | None, kind: str, cut: Any) -> tuple[Any, Any, Any]:
    mesh = mesh_of(kind)
    dmesh = dmesh_of(mesh, device_mesh, cut)

    def on(cls: Any) -> Any:
        return distributed(cls).from_mesh(dmesh)

    zeros = torch.zeros(dmesh.index_map.n_owned * mesh.dim, dtype=mesh.dtype)
    u, info = stretched(mesh, on, zeros, {"rtol": 1e-13})
    assert all(step.linear_iterations > 0 for step in info.steps)
    n = dmesh.index_map.n_owned
    height, *slopes = derivatives(mesh, on, zeros[:n], dmesh.sum, {"rtol": 1e-13})
    return dmesh.gather(u), info.residuals, (dmesh.gather(height), *slopes)


def same(found: tuple[Any, Any, Any], expected: tuple[Any, Any, Any]) -> None:
    torch.testing.assert_close(found[0], expected[0], rtol=0, atol=1e-10)
    assert len(found[1]) == len(expected[1])
    assert found[1] == pytest.approx(expected[1], rel=1e-3, abs=1e-9)
    for one, other in zip(found[2], expected[2], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_newton_is_the_serial_one(ranks: RankPool, n: int) -> None:
    """features | newton, NewtonInfo, NewtonStep: distributed."""
    expected = serial("tet")
    for found in ranks(n, sharded, "tet", METHODS[n - 1]):
        same(found, expected)


def test_newton_where_a_rank_owns_nothing(ranks: RankPool) -> None:
    expected = serial("grid")
    for found in ranks(2, sharded, "grid", NOTHING_OWNED):
        same(found, expected)


def test_newton_on_parts_of_one_process() -> None:
    same(sharded(None, "tri", "coordinate"), serial("tri"))


def burgers(v: Tensor, gradv: Tensor, u: Tensor, gradu: Tensor, k: Tensor) -> Tensor:
    return k * (gradu @ gradv) + u * gradu[0] * v - v


def carried(mesh: tm.Mesh, form: Any, zeros: Tensor, total: Any, solve: Any) -> tuple[Any, ...]:
    """A problem whose tangent is not symmetric, and its derivative by replicated data."""
    k = (0.2 + mesh.points[:, 0]).requires_grad_()

    def given(u: Tensor, k: Tensor) -> dict[str, Any]:
        return {"func": burgers, "point_data": {"u": u, "k": k}}

    u = tm.newton(
        lambda u, k: form(**given(u, k)),
        lambda u, k: form.tangent(**given(u, k), unknown="u"),
        zeros,
        (k,),
        condenser=tm.Condenser(mesh.boundary_mask),
        solve_options=solve,
        **SHARP,
    )
    return u.detach(), torch.autograd.grad(total(u**3), k)[0]


def carried_on_ranks(device_mesh: DeviceMesh) -> tuple[Any, ...]:
    mesh = mesh_of("tri")
    dmesh = dmesh_of(mesh, device_mesh)
    form = distributed(tm.NodeAssembler).from_mesh(dmesh)
    zeros = torch.zeros(dmesh.index_map.n_owned, dtype=mesh.dtype)
    u, gradient = carried(mesh, form, zeros, dmesh.sum, {"rtol": 1e-13})
    return dmesh.gather(u), gradient


def test_newton_where_the_tangent_is_not_symmetric(ranks: RankPool) -> None:
    mesh = mesh_of("tri")
    form, zeros = tm.NodeAssembler.from_mesh(mesh), torch.zeros(mesh.n_points, dtype=mesh.dtype)
    expected = carried(mesh, form, zeros, torch.sum, None)
    for found in ranks(3, carried_on_ranks):
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-11)


# -- nonlinear_solve -------------------------------------------------------------------------------


def cubic(u: Tensor, A: Any, f: Tensor) -> Tensor:
    return A @ u + u**3 - f


def around_a_matrix(device_mesh: DeviceMesh) -> dict[str, Any]:
    mesh = mesh_of("tri")
    dmesh = dmesh_of(mesh, device_mesh)
    mass = distributed(tm.MassElementAssembler).from_mesh(dmesh)
    K = distributed(tm.LaplaceElementAssembler).from_mesh(dmesh)() + mass()
    diagonal = (mass() * 0).values
    f = torch.cos(mesh.points[:, 0]).requires_grad_()

    def jac_fn(u: Tensor, A: Any, f: Tensor) -> Any:
        place = A.layout.diagonal_entries
        return A._with_values(A.values + diagonal.index_add(0, place, 3 * u**2))

    def solved(f: Tensor, **options: Any) -> Tensor:
        u0 = torch.zeros(K.layout.n_owned, dtype=mesh.dtype)
        return K.nonlinear_solve(cubic, u0, dmesh.scatter(f), **options)

    u = solved(f, jac_fn=jac_fn, tol=1e-12)
    rank = device_mesh.get_rank()
    return {
        "u": dmesh.gather(u.detach()),
        "gradient": torch.autograd.grad(dmesh.sum(u), f)[0],
        "dense": outcome(solved, f),
        "iterations": outcome(solved, f, jac_fn=jac_fn, max_iter=1),
        "options": outcome(solved, f, jac_fn=jac_fn, max_iter=10 + rank),
    }


def test_nonlinear_solve_on_ranks(ranks: RankPool) -> None:
    """features | nonlinear_solve: distributed."""
    mesh = mesh_of("tri")
    mass = tm.MassElementAssembler.from_mesh(mesh)()
    K = tm.LaplaceElementAssembler.from_mesh(mesh)() + mass
    f = torch.cos(mesh.points[:, 0]).requires_grad_()
    u = K.nonlinear_solve(cubic, torch.zeros(mesh.n_points, dtype=mesh.dtype), f, tol=1e-12)
    (gradient,) = torch.autograd.grad(u.sum(), f)
    for found in ranks(3, around_a_matrix):
        torch.testing.assert_close(found["u"], u.detach(), rtol=0, atol=1e-8)
        torch.testing.assert_close(found["gradient"], gradient, rtol=1e-6, atol=1e-8)
        assert found["dense"][0] == "ValueError"
        assert "jac_fn" in found["dense"][1]
        assert found["iterations"][0] == "NotConvergedError"
        assert found["options"][0] == "ValueError"
        assert "different" in found["options"][1]
