"""Gradients through the sharded solve, against a direct solve in one process."""

from typing import Any

import torch
from torch import Tensor

import tensormesh as tm
from tensormesh.distributed.device_mesh import DeviceMesh
from tests.rank_pool import RankPool


class Diffusion(tm.ElementAssembler):
    """``k grad u . grad v`` with a nodal coefficient."""

    def forward(self, gradu: Tensor, gradv: Tensor, k: Tensor) -> Tensor:
        return k * (gradu @ gradv)


class Source(tm.NodeAssembler):
    """``s v`` with a nodal source."""

    def forward(self, v: Tensor, s: Tensor) -> Tensor:
        return s * v


def mesh_and_data() -> tuple[tm.Mesh, Tensor, Tensor]:
    mesh = tm.Mesh.gen_rectangle(n=(7, 6), element_type="mixed")
    x, y = mesh.points.unbind(1)
    return mesh, 1 + x * y, torch.sin(3 * x) + y


def reference() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Value, gradients, and a second derivative, by direct solves in one process."""
    mesh, k, s = mesh_and_data()
    k.requires_grad_(), s.requires_grad_()
    K = Diffusion.from_mesh(mesh)(point_data={"k": k})
    f = Source.from_mesh(mesh)(point_data={"s": s})
    condenser = tm.Condenser(mesh.boundary_mask, mesh.points[:, 0])
    K_i, f_i = condenser(K, f)
    u = condenser.recover(K_i.solve(f_i))
    value = (u * u).sum()
    return (value.detach(), *second_derivative(value, k, s))


def second_derivative(value: Tensor, k: Tensor, s: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    of_k, of_s = torch.autograd.grad(value, [k, s], create_graph=True)
    weights = torch.linspace(0, 1, of_k.numel(), dtype=of_k.dtype)
    (second,) = torch.autograd.grad(of_k @ weights, k)
    return of_k.detach(), of_s.detach(), second


def sharded(device_mesh: DeviceMesh) -> tuple[Tensor, ...]:
    mesh, k, s = mesh_and_data()
    k.requires_grad_(), s.requires_grad_()
    dmesh = tm.DistributedMesh(mesh, device_mesh=device_mesh)
    K = tm.distributed_element_assemble(Diffusion, dmesh, call_kwargs={"point_data": {"k": k}})
    f = tm.distributed_node_assemble(Source, dmesh, point_data={"s": s})
    condenser = tm.Condenser(mesh.boundary_mask, mesh.points[:, 0])
    K_i, f_i = condenser(K, f)
    u = condenser.recover(K_i.solve(f_i, rtol=1e-13))
    value = dmesh.dot(u, u)
    return (value.detach(), *second_derivative(value, k, s))


def test_gradients_through_the_solve_are_those_of_one_process(ranks: RankPool) -> None:
    expected = reference()
    for n in (1, 2, 3):
        for found in ranks(n, sharded):
            for a, b in zip(found, expected, strict=True):
                assert torch.allclose(a, b, rtol=1e-8, atol=1e-10 * float(b.abs().max()))


def unreachable(device_mesh: DeviceMesh) -> Any:
    mesh, k, s = mesh_and_data()
    dmesh = tm.DistributedMesh(mesh, device_mesh=device_mesh)
    K = tm.distributed_element_assemble(Diffusion, dmesh, call_kwargs={"point_data": {"k": k}})
    f = tm.distributed_node_assemble(Source, dmesh, point_data={"s": s}).requires_grad_()
    K_i, f_i = tm.Condenser(mesh.boundary_mask)(K, f)
    u = K_i.solve(f_i, x0=K_i.solve(f_i.detach()), maxiter=1)  # the guess is the solution
    try:
        K_i.layout.vectors.dot(u, u).backward()
    except tm.NotConvergedError as error:
        return str(error)
    return None


def test_an_adjoint_that_does_not_converge_is_reported(ranks: RankPool) -> None:
    for message in ranks(2, unreachable):
        assert "maxiter" in message
