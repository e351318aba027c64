"""Internal forces, tangents and values at quadrature points on ranks: the serial ones."""

from typing import Any

import pytest
import torch
from torch import Tensor

import tensormesh as tm
from tensormesh.assemble import NeoHookeanModel
from tensormesh.distributed import distributed
from tensormesh.distributed.device_mesh import DeviceMesh
from tests.distributed.cases import METHODS, NOTHING_OWNED, dmesh_of, mesh_of
from tests.rank_pool import RankPool

KINDS = ("tri", "mixed", "tet")


class Diffusion(tm.NodeAssembler):
    def forward(self, v, gradv, u, gradu, k):
        return (1 + k * u**2) * (gradu @ gradv) + u**3 * v


class Radiation(tm.FacetAssembler):
    def forward(self, v, T, n):
        return T**4 * v * (2 + n[0])


def density(gradu: Tensor, old: Tensor) -> Tensor:
    return old * torch.sqrt(1 + gradu @ gradu)


def hardened(gradu: Tensor, old: Tensor) -> Tensor:
    return old + gradu @ gradu


def assembled(mesh: tm.Mesh, on: Any) -> dict[str, Any]:
    """Vectors and matrices of the forms; `on` makes an assembler of a class."""
    x = mesh.points
    displacement = 0.05 * torch.sin(2 * x + 1)
    u = torch.cos(2 * x[:, 0]) + x[:, 1]
    k = {kind: 1 + torch.arange(len(c), dtype=x.dtype) / 9 for kind, c in mesh.top_cells().items()}
    body = on(NeoHookeanModel)
    diffusion, radiation, plain = on(Diffusion), on(Radiation), on(tm.ElementAssembler)
    diffused = {"point_data": {"u": u}, "element_data": {"k": k}}
    # Two steps of a history: the state of the first comes back as data of the second.
    state: Any = {kind: values.expand_as(values) for kind, values in k.items()}
    for _ in range(2):
        given = {"point_data": {"u": u}, "element_data": {"old": state}}
        state = plain.at_quadrature_points(hardened, **given)
    given = {"point_data": {"u": u}, "element_data": {"old": state}}
    return {
        "force": body.internal_force(displacement),
        "tangent": body.tangent(displacement),
        "residual": diffusion(**diffused),
        "diffusion": diffusion.tangent(**diffused, unknown="u"),
        "radiation": radiation.tangent(point_data={"T": u}),
        "hardened force": plain.internal_force(func=density, **given),
        "hardened tangent": plain.tangent(func=density, **given),
        "hardened energy": plain.energy(func=density, **given),
    }


def whole(found: dict[str, Any], dmesh: tm.DistributedMesh | None = None) -> dict[str, Tensor]:
    def of(x: Any) -> Tensor:
        if isinstance(x, tm.DSparseMatrix):
            assert x.has_same_layout(dmesh.layout(x.layout.h).signature)
            return x.to_single().to_dense()
        if isinstance(x, tm.SparseMatrix):
            return x.to_dense()
        return dmesh.gather(x) if dmesh is not None and x.dim() else x

    return {name: of(x) for name, x in found.items()}


def sharded(device_mesh: DeviceMesh | None, kind: str, cut: Any) -> dict[str, Tensor]:
    mesh = mesh_of(kind)
    dmesh = dmesh_of(mesh, device_mesh, cut)
    return whole(assembled(mesh, lambda cls: distributed(cls).from_mesh(dmesh)), dmesh)


def serial(kind: str) -> dict[str, Tensor]:
    mesh = mesh_of(kind)
    return whole(assembled(mesh, lambda cls: cls.from_mesh(mesh)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [1, 2, 3])
def test_forces_and_tangents_are_the_serial_ones(ranks: RankPool, n: int, kind: str) -> None:
    """Steps of a history are two.

    features | NeoHookeanModel, forces and tangents, history at quadrature points: distributed.
    """
    expected = serial(kind)
    for found in ranks(n, sharded, kind, METHODS[n - 1]):
        for name, x in expected.items():
            torch.testing.assert_close(found[name], x, rtol=1e-11, atol=1e-12, msg=name)


def test_a_rank_that_owns_nothing_takes_part(ranks: RankPool) -> None:
    expected = serial("grid")
    for found in ranks(2, sharded, "grid", NOTHING_OWNED):
        for name, x in expected.items():
            torch.testing.assert_close(found[name], x, rtol=1e-11, atol=1e-12, msg=name)


@pytest.mark.parametrize("kind", ["mixed"])
def test_parts_of_one_process_are_the_whole(kind: str) -> None:
    expected = serial(kind)
    for name, x in sharded(None, kind, "coordinate").items():
        torch.testing.assert_close(x, expected[name], rtol=1e-11, atol=1e-12, msg=name)


def gradients(device_mesh: DeviceMesh) -> tuple[Tensor, Tensor]:
    """Derivative of one entry of a force, and of a tangent, by replicated data."""
    mesh = mesh_of("tri")
    dmesh = dmesh_of(mesh, device_mesh)
    made = distributed(tm.ElementAssembler).from_mesh(dmesh)
    return derivative(mesh, made, dmesh)


def derivative(mesh: tm.Mesh, made: Any, dmesh: Any = None) -> tuple[Tensor, Tensor]:
    k = (1 + mesh.points[:, 0]).requires_grad_()
    u = torch.cos(2 * mesh.points[:, 0]) + mesh.points[:, 1]
    given = {"func": lambda gradu, k: k * (gradu @ gradu) ** 2, "unknown": "u"}
    force = made.internal_force(point_data={"u": u, "k": k}, **given)
    K = made.tangent(point_data={"u": u, "k": k}, **given)
    own = u if dmesh is None else dmesh.scatter(u)
    add = torch.sum if dmesh is None else dmesh.sum
    size = add(force**2), add((K @ own) ** 2)
    return tuple(torch.autograd.grad(x, k, retain_graph=True)[0] for x in size)


def test_forces_and_tangents_have_full_gradients_on_ranks(ranks: RankPool) -> None:
    mesh = mesh_of("tri")
    expected = derivative(mesh, tm.ElementAssembler.from_mesh(mesh))
    for found in ranks(3, gradients):
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


def test_the_wrong_unknown_is_refused_on_every_rank(ranks: RankPool) -> None:
    for found in ranks(2, refusal):
        assert "unknown = 'w'" in found


def refusal(device_mesh: DeviceMesh) -> str:
    mesh = mesh_of("tri")
    made = distributed(NeoHookeanModel).from_mesh(dmesh_of(mesh, device_mesh))
    with pytest.raises(tm.FormError) as caught:
        tm.ElementAssembler.tangent(made, point_data={"u": mesh.points}, unknown="w")
    return str(caught.value)
