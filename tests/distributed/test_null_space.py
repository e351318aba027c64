"""Singular systems with a known null space: the solution of the pseudo-inverse."""

from typing import Any

import pytest
import torch
from torch import Tensor

import tensormesh as tm
from tensormesh.distributed.device_mesh import DeviceMesh
from tests.distributed.cases import dmesh_of, mesh_of, outcome
from tests.rank_pool import RankPool


class Above(tm.ElementAssembler):
    """The Laplacian twice, with opposite signs: indefinite, and blind to constants."""

    def forward(self, u, v, gradu, gradv):
        return (gradu @ gradv) * torch.diag(torch.tensor([1.0, -2.0], dtype=gradu.dtype))


FORMS: dict[str, tuple[type[tm.ElementAssembler], int]] = {
    "laplace": (tm.LaplaceElementAssembler, 1),
    "elasticity": (tm.LinearElasticityElementAssembler, 2),
    "indefinite": (Above, 2),
}


def rigid(points: Tensor) -> Tensor:
    """Translations and the rotation, neither orthogonal nor of one length."""
    x, y = points.unbind(1)
    one, zero = torch.ones_like(x), torch.zeros_like(x)
    modes = [(one, zero), (one, one), (-y, x)]
    return torch.stack([torch.stack(mode, dim=1).flatten() for mode in modes], dim=1)


def load(mesh: tm.Mesh, h: int) -> Tensor:
    """Not orthogonal to any motion; two columns."""
    n = torch.arange(mesh.n_points * h, dtype=mesh.points.dtype)
    return torch.stack([torch.sin(n) + 0.3, torch.cos(n * n)], dim=1)


def solved(device_mesh: DeviceMesh, name: str, options: dict[str, Any]) -> dict[str, Any]:
    mesh = mesh_of("tri")
    form, h = FORMS[name]
    dmesh = dmesh_of(mesh, device_mesh)
    K = tm.distributed_element_assemble(form, dmesh)
    b = dmesh.scatter(load(mesh, h)).requires_grad_()
    modes = dmesh.scatter(rigid(mesh.points)) if name == "elasticity" else "constants"
    x, info = K.solve(b, null_space=modes, rtol=1e-12, return_info=True, **options)
    one = K.solve(b[:, 0].detach(), null_space=modes, rtol=1e-12, **options)
    (grad,) = torch.autograd.grad(dmesh.dot(x[:, 0] ** 2, x[:, 1]), b)
    return {
        "x": dmesh.gather(x.detach()),
        "one": dmesh.gather(one),
        "grad": dmesh.gather(grad),
        "method": info.method,
    }


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize(
    ("name", "options", "method"),
    [
        ("laplace", {}, "cg"),
        ("laplace", {"method": "gmres"}, "gmres"),
        ("laplace", {"preconditioner": "none"}, "cg"),
        ("elasticity", {}, "cg"),
        ("indefinite", {}, "minres"),
    ],
)
def test_the_solution_is_that_of_the_pseudo_inverse(
    ranks: RankPool, n: int, name: str, options: dict[str, Any], method: str
) -> None:
    """features | null_space: distributed, differentiable."""
    mesh = mesh_of("tri")
    form, h = FORMS[name]
    inverse = torch.linalg.pinv(form.from_mesh(mesh)().to_dense(), rcond=1e-10, hermitian=True)
    b = load(mesh, h).requires_grad_()
    x = inverse @ b
    (grad,) = torch.autograd.grad((x[:, 0] ** 2 * x[:, 1]).sum(), b)
    for found in ranks(n, solved, name, options):
        close = {"rtol": 1e-7, "atol": 1e-8 * float(x.detach().abs().max())}
        torch.testing.assert_close(found["x"], x.detach(), **close)
        torch.testing.assert_close(found["one"], x[:, 0].detach(), **close)
        torch.testing.assert_close(found["grad"], grad, rtol=1e-6, atol=1e-6 * grad.abs().max())
        assert found["method"] == method


def refused(device_mesh: DeviceMesh) -> dict[str, Any]:
    mesh = mesh_of("tri")
    dmesh = dmesh_of(mesh, device_mesh)
    K = tm.distributed_element_assemble(tm.LaplaceElementAssembler, dmesh)
    x = dmesh.scatter(mesh.points)
    ones = torch.ones_like(x[:, :1])
    b = x[:, 0] + 1.0
    return {
        "none": outcome(K.solve, b),
        "not null": outcome(K.solve, b, null_space=x),
        "twice": outcome(K.solve, b, null_space=torch.cat([ones, 2 * ones], dim=1)),
        "shape": outcome(K.solve, b, null_space=ones[:, 0]),
        "text": outcome(K.solve, b, null_space="rotations"),
        "direct": outcome(K.solve, b, null_space="constants", method="direct"),
        "singular": outcome(K.solve, b - dmesh.mean(b), method="direct"),
    }


@pytest.mark.parametrize("n", [1, 3])
def test_what_is_no_null_space_is_refused_on_every_rank(ranks: RankPool, n: int) -> None:
    for found in ranks(n, refused):
        assert found["none"][0] == found["singular"][0] == "SingularMatrixError"
        assert {found[k][0] for k in found} == {"ValueError", "SingularMatrixError"}
        assert "column 0" in found["not null"][1]
        assert "depend" in found["twice"][1]
        for name in ("shape", "text", "direct"):
            assert "null_space" in found[name][1]
