"""Steps in time on ranks are the serial ones."""

from typing import Any

import pytest
import torch
from torch import Tensor

import tensormesh as tm
from tensormesh.distributed import distributed
from tensormesh.distributed.device_mesh import DeviceMesh
from tensormesh.time import GeneralizedAlpha, Newmark, ThetaMethod
from tests.distributed.cases import METHODS, NOTHING_OWNED, dmesh_of, mesh_of
from tests.rank_pool import RankPool


def mass(u: Tensor, v: Tensor) -> Tensor:
    return u * v * torch.eye(2, dtype=u.dtype)


def steps(mesh: tm.Mesh, on: Any, own: Any, options: Any) -> list[Tensor]:
    """Heat with a moving boundary, and a body that swings, three steps each."""
    x = mesh.points
    M, K = on(tm.MassElementAssembler)(), on(tm.LaplaceElementAssembler)()
    held = tm.Condenser(mesh.boundary_mask)
    u, f = own(torch.cos(2 * x[:, 0]) + x[:, 1]), own(torch.sin(x[:, 1]))
    heat = ThetaMethod(M, K, 0.05, condenser=held, solve_options=options)
    for step in range(1, 4):
        u = heat.step(u, (step - 1) * f, step * f, x[:, 0] * step)
    found = [u]
    M, K = on(tm.ElementAssembler)(func=mass), on(tm.LinearElasticityElementAssembler)()
    clamped = tm.Condenser((x[:, 0] == 0).repeat_interleave(2))
    for method in (Newmark, GeneralizedAlpha):
        body = method(M, K, 0.3, M * 0.1, condenser=clamped, solve_options=options)
        motion = body.start(own((0.1 * x[:, :1] * x).flatten()), own((x[:, :1] * x).flatten()))
        for step in range(3):
            motion = body.step(motion, prescribed=0.01 * step * x.flatten() + 0.01 * step)
        found += [motion.u, motion.v, motion.a]
    return found


def serial(kind: str) -> list[Tensor]:
    mesh = mesh_of(kind)
    return steps(mesh, lambda cls: cls.from_mesh(mesh), lambda x: x, None)


def sharded(device_mesh: DeviceMesh | None, kind: str, cut: Any) -> list[Tensor]:
    mesh = mesh_of(kind)
    dmesh = dmesh_of(mesh, device_mesh, cut)
    found = steps(
        mesh, lambda cls: distributed(cls).from_mesh(dmesh), dmesh.scatter, {"rtol": 1e-13}
    )
    return [dmesh.gather(x) for x in found]


@pytest.mark.parametrize("n", [1, 2, 3])
def test_steps_are_the_serial_ones(ranks: RankPool, n: int) -> None:
    """features | ThetaMethod, Newmark, GeneralizedAlpha, Motion: distributed."""
    expected = serial("tri")
    for found in ranks(n, sharded, "tri", METHODS[n - 1]):
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


def test_steps_where_a_rank_owns_nothing(ranks: RankPool) -> None:
    expected = serial("grid")
    for found in ranks(2, sharded, "grid", NOTHING_OWNED):
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


def test_steps_on_parts_of_one_process() -> None:
    for one, other in zip(sharded(None, "tri", "coordinate"), serial("tri"), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)
