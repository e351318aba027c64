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


class Between(tm.ElementAssembler):
    """Symmetric and indefinite, with a positive diagonal: between eigenvalues of the Laplacian."""

    def forward(self, u, v, gradu, gradv):
        return gradu @ gradv - 15.0 * u * v


FORMS: dict[str, tuple[Any, int]] = {
    "mass": (tm.MassElementAssembler, 1),
    "wind": (Wind, 1),
    "above": (Above, 2),
    "between": (Between, 1),
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
    ("mass", 2, {"preconditioner": "schwarz"}),
    ("wind", 2, {"preconditioner": "schwarz"}),
    ("above", 0, {"preconditioner": "schwarz"}),
    ("between", 2, {"preconditioner": "schwarz"}),
    ("between", 0, {"preconditioner": "jacobi"}),
    ("mass", 0, {"preconditioner": "none"}),
    ("mass", 0, {"callback": None}),
    ("mass", 0, {"x0": "near"}),
    ("wind", 0, {"maxiter": 400}),
    ("wind", 0, {"restart": 30}),
    ("laplace", 2, {"null_space": "constants"}),
    ("elasticity", 0, {"null_space": "constants", "rtol": 1e-2, "on_failure": "return"}),
]


@pytest.mark.parametrize(("form", "columns", "options"), CASES)
def test_options_mean_the_same(
    ranks: RankPool, form: str, columns: int, options: dict[str, Any]
) -> None:
    """distributed-api DSparseMatrix | `solve`: serial and sharded take the same options.

    features | method auto, preconditioner jacobi, preconditioner multilevel: serial, distributed.
    features | preconditioner of the user's, preconditioner schwarz: serial, distributed.
    features | SolveInfo: serial, distributed.
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


@pytest.mark.parametrize("preconditioner", ["multilevel", "schwarz", Halves()], ids=str)
@pytest.mark.parametrize("form", ["between", "above"])
def test_auto_goes_on_where_the_matrix_is_not_definite(
    ranks: RankPool, form: str, preconditioner: Any
) -> None:
    options = {"preconditioner": preconditioner, "rtol": 1e-10}
    if (form, preconditioner) == ("above", "multilevel"):  # negative diagonals have no levels
        for error in (outcome(serial, form, 0, options), ranks(2, refused, form, options)[1]):
            assert error is not None
            assert error[0] == "ValueError"
            assert "not positive; use 'jacobi' or 'schwarz'" in error[1]
        return
    kind, _ = FORMS[form]
    A = kind.from_mesh(mesh_of("tri"))().to_scipy_coo().tocsc()
    exact = spl.spsolve(A, load(A.shape[0], 0).numpy())
    for x, info, _, _ in (serial(form, 0, options), ranks(2, sharded, form, 0, options)[0]):
        assert info.converged
        assert info.method in ("minres", "gmres")
        assert len(info.history) == info.iterations
        np.testing.assert_allclose(x, exact, atol=1e-6 * abs(exact).max())


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"rtol": "1e-3"}, "TypeError"),
    ({"rtol": 1e-3j}, "TypeError"),
    ({"rtol": True}, "TypeError"),
    ({"rtol": -1e-3}, "ValueError"),
    ({"rtol": float("nan")}, "ValueError"),
    ({"atol": "0"}, "TypeError"),
    ({"maxiter": 2.5}, "TypeError"),
    ({"maxiter": 3.0}, "TypeError"),
    ({"maxiter": True}, "TypeError"),
    ({"maxiter": 0}, "ValueError"),
    ({"restart": 7.0}, "TypeError"),
    ({"restart": -1}, "ValueError"),
    ({"callback": 3}, "TypeError"),
]


@pytest.mark.parametrize(("options", "error"), WRONG, ids=str)
def test_wrong_numbers_are_named(ranks: RankPool, options: dict[str, Any], error: str) -> None:
    ((name, value),) = options.items()
    for found in (wrongly("mass", options), *ranks(2, refused_number, options)):
        assert found is not None
        assert found[0] == error
        assert name in found[1]
        assert repr(value) in found[1]


def wrongly(form: str, options: dict[str, Any]) -> tuple[str, str] | None:
    A = FORMS[form][0].from_mesh(mesh_of("tri"))()
    return outcome(A.solve, load(A.shape[0], 0), **options)


def refused_number(device_mesh: DeviceMesh, options: dict[str, Any]) -> tuple[str, str] | None:
    dmesh = dmesh_of(mesh_of("tri"), device_mesh)
    K = tm.distributed_element_assemble(tm.MassElementAssembler, dmesh)
    return outcome(K.solve, K.diagonal(), **options)


def by_default(device_mesh: DeviceMesh | None, dtype: torch.dtype) -> tuple[Tensor, float]:
    """A Poisson problem of 840 unknowns, solved without a tolerance."""
    mesh = tm.Mesh.gen_rectangle(n=(20, 20)).to(dtype)
    mask, form = (mesh.points[:, 0] == 0).repeat_interleave(2), tm.LinearElasticityElementAssembler
    if device_mesh is None:
        K = form.from_mesh(mesh)()
        A, b = tm.Condenser(mask)(K, torch.ones(K.shape[0], dtype=dtype))
        x, info = A.solve(b, method="cg", return_info=True)
        return x, info.residual
    dmesh = tm.DistributedMesh(mesh, device_mesh=device_mesh)
    K = tm.distributed_element_assemble(form, dmesh)
    A, b = tm.Condenser(mask)(K, torch.ones(K.shape[1], dtype=dtype)[: K.layout.n_owned])
    x, info = A.solve(b, return_info=True)
    return A.layout.vectors.gather(x), info.residual


def test_the_default_tolerance_fits_the_dtype(ranks: RankPool) -> None:
    """1e-10 in double precision, and what single precision can hold, in one process or on ranks."""
    mesh = tm.Mesh.gen_rectangle(n=(20, 20))
    mask = (mesh.points[:, 0] == 0).repeat_interleave(2)
    K = tm.LinearElasticityElementAssembler.from_mesh(mesh)()
    A, b = tm.Condenser(mask)(K, torch.ones(K.shape[0], dtype=torch.float64))
    exact = torch.from_numpy(spl.spsolve(A.to_scipy_coo().tocsc(), b.numpy()))
    for dtype, rtol, error in ((torch.float64, 1e-10, 1e-7), (torch.float32, 1e-8, 1e-4)):
        for x, residual in (by_default(None, dtype), *ranks(2, by_default, dtype)):
            assert x.dtype == dtype
            assert rtol / 100 < residual <= rtol
            assert (x.double() - exact).abs().max() < error * exact.abs().max()


class Fails:
    """A preconditioner that fails on a rank, the third time."""

    name = "fails"

    def __init__(self, what: str = "raises") -> None:
        self.what, self.left = what, 3

    def __matmul__(self, r: Tensor) -> Tensor:
        self.left -= 1
        if self.left or self.what == "works":
            return 0.5 * r
        if self.what == "raises":
            raise ArithmeticError("no more")
        return r[:0]


def failing(device_mesh: DeviceMesh, method: str, how: str) -> Any:
    dmesh = dmesh_of(mesh_of("tri"), device_mesh)
    K = tm.distributed_element_assemble(tm.MassElementAssembler, dmesh)
    b = dmesh.scatter(load(K.shape[0], 0))
    here = device_mesh.get_local_rank() == 1

    def call(iteration: int, residual: float) -> None:
        if here and iteration == 3:
            raise ArithmeticError("no more")

    if how == "callback":
        return outcome(K.solve, b, method=method, callback=call)
    M = Fails(how if here else "works")
    return outcome(K.solve, b, method=method, preconditioner=M)


@pytest.mark.parametrize("method", ["cg", "minres", "gmres", "bicgstab"])
@pytest.mark.parametrize("how", ["callback", "raises", "another shape"])
def test_what_fails_on_one_rank_is_raised_on_all(ranks: RankPool, method: str, how: str) -> None:
    expected = ("ValueError", "expected") if how == "another shape" else ("ArithmeticError", "no m")
    for found in ranks(3, failing, method, how):
        assert found is not None
        assert found[0] == expected[0]
        assert expected[1] in found[1]


def test_schwarz_of_one_part_has_gradients() -> None:
    """features | preconditioner schwarz: differentiable."""
    A = Wind.from_mesh(tm.Mesh.gen_rectangle(n=(2, 2)))()
    b = load(A.shape[0], 0).requires_grad_()
    values = A.values.clone().requires_grad_()

    def solved(values: Tensor, b: Tensor) -> Tensor:
        return A._with_values(values).solve(b, preconditioner="schwarz", tol=1e-13)

    assert torch.autograd.gradcheck(solved, (values, b), fast_mode=True)


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
    assert ranks(2, refused, "laplace", options)[0][0] == "SingularMatrixError"


def refused(device_mesh: DeviceMesh, form: str, options: dict[str, Any]) -> Any:
    return outcome(sharded, device_mesh, form, 0, options)


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
