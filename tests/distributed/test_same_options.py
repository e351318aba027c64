"""One script, serial and sharded: each option of `solve` has one meaning."""

import inspect
from typing import Any

import numpy as np
import pytest
import scipy.sparse.linalg as spl
import torch
from torch import Tensor

import tensormesh as tm
from tensormesh.distributed.device_mesh import DeviceMesh
from tests.distributed.cases import dmesh_of, mesh_of, outcome
from tests.rank_pool import RankPool


class Wind(tm.ElementAssembler):
    """Not symmetric."""

    def forward(self, u, v, gradu, gradv):
        return gradu @ gradv + u * v + 3.0 * gradu[0] * v


class Above(tm.ElementAssembler):
    """Symmetric and indefinite, with a diagonal of both signs."""

    def forward(self, u, v, gradu, gradv):
        sign = torch.diag(torch.tensor([1.0, -2.0], dtype=gradu.dtype))
        return (gradu @ gradv + u * v) * sign


FORMS: dict[str, tuple[Any, int]] = {
    "mass": (tm.MassElementAssembler, 1),
    "wind": (Wind, 1),
    "above": (Above, 2),
    "laplace": (tm.LaplaceElementAssembler, 1),
    "elasticity": (tm.LinearElasticityElementAssembler, 2),
}


class Halves:
    """A preconditioner of the user's, who gives it no name."""

    def __matmul__(self, r: Tensor) -> Tensor:
        return 0.5 * r

    @property
    def T(self) -> "Halves":
        return self


def script(K: Any, b: Tensor, options: dict[str, Any]) -> tuple[Tensor, Any, Any, list[int]]:
    """What a user writes, whatever `K` is."""
    heard: list[int] = []
    options = {"rtol": 1e-11} | options
    if options.get("x0") == "near":
        options["x0"] = b.clone()
    if "callback" in options:
        options["callback"] = lambda i, residual: heard.append(i)
    x, info = K.solve(b, return_info=True, **options)
    return x, info, K @ x, heard


def load(n: int, columns: int) -> Tensor:
    i = torch.arange(n, dtype=torch.float64)
    b = torch.sin(i * i) + 0.2
    return torch.stack([b, *(torch.cos(j * i) for j in range(1, columns))], 1) if columns else b


def sharded(device_mesh: DeviceMesh, form: str, columns: int, options: dict[str, Any]) -> Any:
    kind, h = FORMS[form]
    mesh = mesh_of("tri")
    dmesh = dmesh_of(mesh, device_mesh)
    K = tm.distributed_element_assemble(kind, dmesh)
    b = dmesh.scatter(load(mesh.n_points * h, columns))
    x, info, Kx, heard = script(K, b, options)
    return dmesh.gather(x), info, dmesh.gather(Kx), heard


def serial(form: str, columns: int, options: dict[str, Any]) -> Any:
    kind, h = FORMS[form]
    mesh = mesh_of("tri")
    return script(kind.from_mesh(mesh)(), load(mesh.n_points * h, columns), options)


CASES: list[tuple[str, int, dict[str, Any]]] = [
    ("wind", 0, {"method": "direct"}),
    ("wind", 3, {"method": "direct"}),
    ("mass", 3, {"method": "cg"}),
    ("mass", 0, {"method": "cg", "preconditioner": "none"}),
    ("mass", 0, {"method": "cg", "preconditioner": Halves()}),
    ("mass", 2, {"preconditioner": "multilevel"}),
    ("mass", 0, {"preconditioner": "jacobi"}),
    ("mass", 0, {"method": "cg", "x0": "near"}),
    ("mass", 0, {"method": "cg", "rtol": 0.0, "atol": 1e-9}),
    ("above", 0, {"method": "minres"}),
    ("above", 2, {"preconditioner": "jacobi"}),
    ("wind", 2, {"method": "gmres", "restart": 7, "callback": None}),
    ("wind", 0, {"method": "bicgstab", "callback": None}),
    ("wind", 0, {"preconditioner": Halves()}),
    ("laplace", 2, {"null_space": "constants"}),
    ("elasticity", 0, {"null_space": "constants", "rtol": 1e-2, "on_failure": "return"}),
]


@pytest.mark.parametrize(("form", "columns", "options"), CASES)
def test_options_mean_the_same(
    ranks: RankPool, form: str, columns: int, options: dict[str, Any]
) -> None:
    """distributed-api DSparseMatrix | `solve`: serial and sharded take the same options.

    features | method auto, preconditioner jacobi, preconditioner multilevel: serial, distributed.
    features | preconditioner of the user's, SolveInfo: serial, distributed.
    """
    kind, h = FORMS[form]
    A = kind.from_mesh(mesh_of("tri"))().to_scipy_coo().tocsc()
    b = load(A.shape[0], columns).numpy()
    if "null_space" in options:
        components = b.reshape(-1, h, *b.shape[1:])
        b = (components - components.mean(axis=0)).reshape(b.shape)
    results = {"serial": serial(form, columns, options)}
    for n in (1, 2):
        results[f"{n} ranks"] = ranks(n, sharded, form, columns, options)[0]
    methods = set()
    for where, (x, info, Kx, heard) in results.items():
        norms = np.atleast_1d(np.linalg.norm(b - Kx.numpy(), axis=0) / np.linalg.norm(b, axis=0))
        assert info.residual == pytest.approx(norms.max(), rel=0.05, abs=1e-14), where
        assert len(info.history) == info.iterations
        assert heard == (list(range(1, info.iterations + 1)) if "callback" in options else [])
        methods.add((info.method.replace("lu", "direct"), info.preconditioner, info.converged))
        if form == "elasticity":
            continue  # its rotation is left: only what is reported can be compared
        exact = np.linalg.lstsq(A.toarray(), b)[0] if form == "laplace" else spl.spsolve(A, b)
        np.testing.assert_allclose(x, exact, atol=1e-7 * abs(exact).max(), err_msg=where)
        assert info.converged
    assert len(methods) == 1, methods


@pytest.mark.parametrize("method", ["cg", "minres", "gmres", "bicgstab"])
def test_what_cannot_converge_in_so_few_iterations_is_reported(
    ranks: RankPool, method: str
) -> None:
    options = {"method": method, "maxiter": 2, "on_failure": "return"}
    found = [
        serial("mass", 0, options),
        *(ranks(n, sharded, "mass", 0, options)[0] for n in (1, 2)),
    ]
    b = load(mesh_of("tri").n_points, 0)
    for _, info, Kx, _ in found:
        assert (info.converged, info.reason, info.iterations) == (False, "maxiter", 2)
        assert info.residual == pytest.approx(float((b - Kx).norm() / b.norm()), rel=1e-9)
        assert info.residual > 1e-11


SINGULAR = [{"method": m} for m in ("direct", "cg", "minres", "gmres", "bicgstab")]


@pytest.mark.parametrize("options", SINGULAR)
def test_a_singular_system_is_named_wherever_it_is(
    ranks: RankPool, options: dict[str, Any]
) -> None:
    """known-faults | 16: a pure Neumann problem with a load that has no solution."""
    assert outcome(serial, "laplace", 0, options)[0] == "SingularMatrixError"
    assert ranks(2, refused, options)[0][0] == "SingularMatrixError"


def refused(device_mesh: DeviceMesh, options: dict[str, Any]) -> Any:
    return outcome(sharded, device_mesh, "laplace", 0, options)


def test_keywords_are_those_of_the_sharded_matrix() -> None:
    of_sharded = inspect.signature(tm.DSparseMatrix.solve).parameters
    of_serial = inspect.signature(tm.SparseMatrix.solve).parameters
    assert set(of_sharded) <= set(of_serial)


def test_vectors_of_a_null_space_and_gradients_through_it() -> None:
    """features | null_space: serial, differentiable."""
    mesh = mesh_of("tri")
    K = tm.LinearElasticityElementAssembler.from_mesh(mesh)()
    b = load(K.shape[0], 0).requires_grad_()
    modes = tm.operator.rigid_modes(mesh.points)
    inverse = torch.linalg.pinv(K.to_dense(), rcond=1e-10, hermitian=True)
    x = K.solve(b, null_space=modes, rtol=1e-12)
    assert torch.allclose(x, inverse @ b, atol=1e-7 * float(x.detach().abs().max()))
    (grad,) = torch.autograd.grad((x**3).sum(), b)
    assert torch.allclose(
        grad, inverse @ (3 * x.detach() ** 2), rtol=1e-5, atol=1e-6 * grad.abs().max()
    )


def test_factors_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """features | SparseMatrix.factorized: serial, differentiable."""
    made = []
    splu = spl.splu
    monkeypatch.setattr(spl, "splu", lambda *a, **k: made.append(1) or splu(*a, **k))
    mesh = mesh_of("tri")
    M = tm.MassElementAssembler.from_mesh(mesh)()
    K = tm.LaplaceElementAssembler.from_mesh(mesh)()
    heat = tm.time.ThetaMethod(M, K, 0.1, solve_options={"rtol": 1e-10})
    u = mesh.points[:, 0].clone().requires_grad_()
    v = heat.step(heat.step(u))
    v.square().sum().backward()
    assert len(made) == 1
    step = torch.linalg.solve((M + K * 0.05).to_dense(), (M - K * 0.05).to_dense())
    exact = step @ step
    assert torch.allclose(v, exact @ u)
    assert torch.allclose(u.grad, 2 * exact.T @ v)
    A = M + K
    factors = A.factorized()
    A.values.mul_(2.0)
    with pytest.raises(RuntimeError, match="factorized"):
        factors.solve(u)
