"""Gradients through the sharded solve, against a direct solve in one process."""

import logging
from typing import Any

import pytest
import torch
from torch import Tensor

import tensormesh as tm
from tensormesh.distributed.device_mesh import DeviceMesh
from tests.distributed.cases import outcome
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
    """features | method auto: differentiable."""
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


class Transport(tm.ElementAssembler):
    """Not symmetric, with a nodal coefficient in front of each part."""

    def forward(self, u: Tensor, v: Tensor, gradu: Tensor, gradv: Tensor, k: Tensor) -> Tensor:
        return k * (gradu @ gradv) + 3.0 * k * k * gradu[0] * v + u * v


class Damped(tm.ElementAssembler):
    """Complex, neither symmetric nor Hermitian."""

    def forward(self, u: Tensor, v: Tensor, gradu: Tensor, gradv: Tensor, k: Tensor) -> Tensor:
        return k * (gradu @ gradv) + (1.0 + 2.0j * k) * u * v + 2.0 * k * gradu[1] * v


def objective(
    dmesh: tm.DistributedMesh, form: type[tm.ElementAssembler], view: str, k: Tensor, s: Tensor
) -> Tensor:
    """A nonlinear function of two solutions."""
    K = tm.distributed_element_assemble(form, dmesh, call_kwargs={"point_data": {"k": k}})
    f = tm.distributed_node_assemble(Source, dmesh, point_data={"s": s})
    b = torch.stack([f, f * f], dim=1)
    u = (getattr(K, view) if view else K).solve(b, rtol=1e-13)
    u = u.abs() ** 2 if u.is_complex() else u
    return dmesh.dot(u[:, 0], u[:, 0] + u[:, 1])


def derivatives(
    device_mesh: DeviceMesh, form: type[tm.ElementAssembler], view: str
) -> dict[str, Any]:
    """First and second derivatives, and the differences that they should equal."""
    mesh = tm.Mesh.gen_rectangle(n=(3, 2))
    dmesh = tm.DistributedMesh(mesh, device_mesh=device_mesh)
    x, y = mesh.points.unbind(1)
    data = [(1 + x * y).requires_grad_(), (torch.sin(3 * x) + y + 1).requires_grad_()]
    ways = [torch.cos(5 * x + 1), torch.cos(4 * y)]

    def slope(t: float) -> tuple[Tensor, Tensor]:
        """Value and its derivative along `ways`, ``t`` from the data."""
        moved = [d + t * w for d, w in zip(data, ways, strict=True)]
        value = objective(dmesh, form, view, *moved)
        grads = torch.autograd.grad(value, data, create_graph=True)
        return value, sum((g * w).sum() for g, w in zip(grads, ways, strict=True))

    value, first = slope(0.0)
    second = sum((g * w).sum() for g, w in zip(torch.autograd.grad(first, data), ways, strict=True))
    step = 1e-4
    (ahead, ahead_slope), (behind, behind_slope) = slope(step), slope(-step)
    return {
        "value": float(value),
        "first": (float(first), float(ahead - behind) / (2 * step)),
        "second": (float(second), float(ahead_slope - behind_slope) / (2 * step)),
    }


@pytest.mark.parametrize(
    ("form", "view"), [(Transport, ""), (Transport, "T"), (Damped, ""), (Damped, "H")]
)
def test_gradients_without_symmetry(
    ranks: RankPool, form: type[tm.ElementAssembler], view: str
) -> None:
    """distributed-api Gradients | finite differences: systems that are not symmetric, columns.

    features | complex systems: differentiable.
    """
    values = []
    for n in (1, 2, 3):
        for found in ranks(n, derivatives, form, view):
            values.append(found["value"])
            for order in ("first", "second"):
                exact, difference = found[order]
                assert exact == pytest.approx(difference, rel=1e-6)
    assert values == pytest.approx([values[0]] * len(values), rel=1e-9)


def of_values(device_mesh: DeviceMesh) -> tuple[Tensor, Tensor]:
    """Derivative by the entries of a symmetric matrix, twice, as if each were free."""
    dmesh = tm.DistributedMesh(tm.Mesh.gen_rectangle(n=(2, 2)), device_mesh=device_mesh)
    M = tm.distributed_element_assemble(tm.MassElementAssembler, dmesh)
    values = M.values.clone().requires_grad_()
    A = tm.DSparseMatrix.from_layout(M.layout, values)
    b = dmesh.scatter(torch.linspace(1, 2, 9, dtype=values.dtype))
    ways = torch.sin(torch.arange(9.0, dtype=values.dtype))
    (first,) = torch.autograd.grad(
        dmesh.dot(A.solve(b, rtol=1e-14), b * b), values, create_graph=True
    )
    rows, cols = M.layout.pattern.row, M.layout.pattern.col
    dofs = M.layout.partition.local_to_global
    weights = ways[dofs[rows]] * torch.cos(ways[dofs[cols]])
    total = dmesh.sum(first * weights)
    (second,) = torch.autograd.grad(total, values)
    whole = [
        tm.DSparseMatrix.from_layout(M.layout, v).to_single() for v in (first.detach(), second)
    ]
    return tuple(A.to_dense() for A in whole)


def test_entries_of_a_symmetric_matrix_have_their_own_derivatives(ranks: RankPool) -> None:
    mesh = tm.Mesh.gen_rectangle(n=(2, 2))
    M = tm.MassElementAssembler.from_mesh(mesh)().to_dense()
    stored = M != 0
    dense = M.clone().requires_grad_()
    b = torch.linspace(1, 2, 9, dtype=M.dtype)
    ways = torch.sin(torch.arange(9.0, dtype=M.dtype))
    weights = torch.outer(ways, torch.cos(ways)) * stored
    (first,) = torch.autograd.grad(torch.linalg.solve(dense, b) @ (b * b), dense, create_graph=True)
    (second,) = torch.autograd.grad((first * weights).sum(), dense)
    for n in (1, 2):
        for found in ranks(n, of_values):
            for a, right in zip(found, (first, second), strict=True):
                torch.testing.assert_close(a, right * stored, rtol=1e-8, atol=1e-8)


class Silent:
    """A preconditioner without a transpose."""

    name = "silent"

    def __matmul__(self, r: Tensor) -> Tensor:
        return 0.3 * r


class Scale(Silent):
    name = "scale"

    @property
    def T(self) -> "Scale":
        return self


def with_objects(device_mesh: DeviceMesh) -> tuple[list[Tensor], list[str], Any]:
    mesh, k, _ = mesh_and_data()
    dmesh = tm.DistributedMesh(mesh, device_mesh=device_mesh)
    K = tm.distributed_element_assemble(Damped, dmesh, call_kwargs={"point_data": {"k": k}})
    found, heard = [], []
    handler = logging.Handler()
    handler.emit = lambda record: heard.append(record.getMessage())
    logging.getLogger("tensormesh").addHandler(handler)
    for M in ("jacobi", Scale(), Silent()):
        b = torch.ones(K.layout.n_owned, dtype=K.dtype).requires_grad_()
        x = K.solve(b, preconditioner=M, rtol=1e-12)
        (grad,) = torch.autograd.grad(dmesh.norm(x), b)
        found.append(dmesh.gather(grad))
    logging.getLogger("tensormesh").removeHandler(handler)
    return found, heard, outcome(K.T.solve, b.detach(), preconditioner=Silent())


def test_preconditioners_of_the_user_serve_gradients(ranks: RankPool) -> None:
    """features | preconditioner of the user's: differentiable."""
    for (first, *others), heard, error in ranks(2, with_objects):
        for other in others:
            torch.testing.assert_close(other, first, rtol=1e-8, atol=1e-10)
        assert len(heard) == 1
        assert "'silent' has no T" in heard[0]
        assert error is None


def by_a_factor(device_mesh: DeviceMesh) -> tuple[float, float]:
    mesh, k, _ = mesh_and_data()
    dmesh = tm.DistributedMesh(mesh, device_mesh=device_mesh)
    K = tm.distributed_element_assemble(Damped, dmesh, call_kwargs={"point_data": {"k": k}})
    factor = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    b = torch.ones(K.layout.n_owned, dtype=K.dtype)
    u = (factor * K).solve(b, rtol=1e-12)
    square = dmesh.dot(u, u).real
    (grad,) = torch.autograd.grad(square, factor)
    return float(grad), float(square)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_a_factor_of_the_matrix_has_its_whole_gradient_on_each_rank(
    ranks: RankPool, n: int
) -> None:
    for grad, square in ranks(n, by_a_factor):  # u is proportional to 1 / factor
        assert grad == pytest.approx(-2 * square / 2.0, rel=1e-9)
