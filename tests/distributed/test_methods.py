"""Which method solves which system, on any number of ranks: against scipy's direct solution."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse.linalg as spl
import torch
from torch import Tensor

import tensormesh as tm
from tensormesh.distributed.device_mesh import DeviceMesh
from tests.distributed.cases import NOTHING_OWNED, dmesh_of, mesh_of, outcome, recorded
from tests.rank_pool import RankPool

SIZES = [1, 2, 3, 4]
System = Callable[[DeviceMesh], tuple[tm.DistributedMesh, tm.DSparseMatrix, Tensor]]


class Advection(tm.ElementAssembler):
    def forward(self, u, v, gradu, gradv):
        return gradu @ gradv + 5.0 * gradu[0] * v + u * v


class Coupled(tm.ElementAssembler):
    """Two unknowns a node, not symmetric."""

    def forward(self, u, v, gradu, gradv):
        mix = torch.tensor([[1.0, 2.0], [-0.5, 1.5]], dtype=gradu.dtype)
        return u * v * mix + (gradu @ gradv) * torch.eye(2, dtype=gradu.dtype)


class Wave(tm.ElementAssembler):
    """Complex and symmetric, hence not Hermitian: damped waves."""

    def forward(self, u, v, gradu, gradv):
        return gradu @ gradv - (30.0 - 8.0j) * u * v


class Hermitian(tm.ElementAssembler):
    """Complex, its own adjoint."""

    def forward(self, u, v, gradu, gradv):
        return gradu @ gradv + u * v + 0.5j * (gradu[0] * v - u * gradv[0])


class Shifted(tm.ElementAssembler):
    """Between eigenvalues of the Laplacian; the diagonal is positive on this mesh."""

    def forward(self, u, v, gradu, gradv):
        return gradu @ gradv - 15.0 * u * v


class Above(tm.ElementAssembler):
    """Above most eigenvalues; the diagonal has both signs."""

    def forward(self, u, v, gradu, gradv):
        return gradu @ gradv - 90.0 * u * v


class Saddle(tm.ElementAssembler):
    """A field and a multiplier a node, whose diagonal is zero."""

    def forward(self, u, v, gradu, gradv):
        field = 0.01 * (gradu @ gradv) + u * v
        zero = torch.zeros_like(field)
        return torch.stack([torch.stack([field, u * v]), torch.stack([u * v, zero])])


class Load(tm.NodeAssembler):
    def forward(self, v, x):
        return v * torch.exp(x[0] + 2 * x[1])


class PairLoad(tm.NodeAssembler):
    def forward(self, v, x):
        return v * torch.stack([1.0 + x[1], x[0] * x[1]])


def system_of(
    device_mesh: DeviceMesh, form: type[tm.ElementAssembler], cut: Any = "coordinate"
) -> tuple[tm.DistributedMesh, tm.DSparseMatrix, Tensor]:
    dmesh = dmesh_of(mesh_of("grid" if cut == NOTHING_OWNED else "tri"), device_mesh, cut)
    K = tm.distributed_element_assemble(form, dmesh)
    load = PairLoad if form in (Coupled, Saddle) else Load
    f = tm.distributed_node_assemble(load, dmesh)
    return dmesh, K, f * (1.0 - 0.5j) if K.values.is_complex() else f


def solved(
    device_mesh: DeviceMesh,
    form: type[tm.ElementAssembler],
    options: dict[str, Any],
    columns: int = 0,
    view: str = "",
    cut: Any = "coordinate",
) -> dict[str, Any]:
    """Solution of ``A``, ``A.T`` or ``A.H``, and all that the driver needs to check it."""
    _, K, b = system_of(device_mesh, form, cut)
    if columns:
        b = torch.stack([b * 10.0**-j + b.flip(0) * (j % 2) for j in range(columns)], dim=1)
        b[:, -1] = 0
    A = getattr(K, view) if view else K
    x, info = A.solve(b, return_info=True, **options)
    whole = K.to_single().to_scipy_coo().tocsc()
    whole = {"": whole, "T": whole.T, "H": whole.conj().T}[view]
    gather = K.layout.vectors.gather
    return {
        "A": whole.tocsc(),
        "b": gather(b).numpy(),
        "x": gather(x).numpy(),
        "info": info,
    }


def check(result: dict[str, Any], rtol: float = 1e-10) -> None:
    """The solution is that of scipy, and what is said of it is true of the worst column."""
    A, b, x, info = result["A"], result["b"], result["x"], result["info"]
    exact = spl.spsolve(A, b)
    np.testing.assert_allclose(x, exact, atol=1e-6 * abs(exact).max())
    norms = np.atleast_1d(np.linalg.norm(b, axis=0))
    residuals = np.atleast_1d(np.linalg.norm(b - A @ x, axis=0)) / np.where(norms > 0, norms, 1.0)
    assert residuals.max() <= 1.01 * rtol
    assert info.converged
    assert info.residual == pytest.approx(residuals.max(), rel=0.05, abs=1e-14)
    assert len(info.history) == info.iterations > 3


FITS = [
    (Advection, "auto", "gmres"),
    (Advection, "gmres", "gmres"),
    (Advection, "bicgstab", "bicgstab"),
    (Coupled, "auto", "gmres"),
    (Coupled, "bicgstab", "bicgstab"),
    (Wave, "auto", "gmres"),
    (Wave, "bicgstab", "bicgstab"),
    (Hermitian, "auto", "cg"),
    (Hermitian, "minres", "minres"),
    (Shifted, "auto", "minres"),
    (Above, "auto", "minres"),
    (Above, "gmres", "gmres"),
    (Saddle, "auto", "minres"),
    (tm.MassElementAssembler, "minres", "minres"),
    (tm.MassElementAssembler, "bicgstab", "bicgstab"),
]


@pytest.mark.parametrize(("form", "method", "expected"), FITS)
def test_each_system_has_a_method(
    ranks: RankPool, form: type[tm.ElementAssembler], method: str, expected: str
) -> None:
    """distributed-api DSparseMatrix | `solve`: symmetric, indefinite, not symmetric, complex.

    known-faults | 24: no method named, or one that fits: the solution of scipy.

    features | method auto, method minres, method gmres, method bicgstab: distributed.
    features | preconditioner jacobi, Jacobi: distributed.
    """
    iterations = []
    options = {"method": method, "rtol": 1e-10}
    for n in SIZES if method == "auto" else (1, 3):
        for result in ranks(n, solved, form, options):
            check(result)
            info = result["info"]
            assert info.method == expected
            assert info.preconditioner == ("none" if form is Saddle else "jacobi")
            iterations.append(info.iterations)
    assert max(iterations) - min(iterations) <= 0.15 * max(iterations)


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize(
    ("form", "method"),
    [
        (tm.MassElementAssembler, "cg"),
        (Above, "minres"),
        (Wave, "gmres"),
        (Advection, "bicgstab"),
        (Hermitian, "cg"),
    ],
)
def test_several_right_hand_sides(
    ranks: RankPool, n: int, form: type[tm.ElementAssembler], method: str
) -> None:
    """known-faults | 25: several right-hand sides, the last of them zero.

    features | several right-hand sides, complex systems: distributed.
    """
    options = {"method": method, "rtol": 1e-10}
    for result in ranks(n, solved, form, options, 4):
        check(result)
        assert not result["x"][:, -1].any()


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("form", [Advection, Wave, Hermitian, tm.MassElementAssembler])
@pytest.mark.parametrize("view", ["T", "H"])
def test_transposes_are_solved(
    ranks: RankPool, n: int, form: type[tm.ElementAssembler], view: str
) -> None:
    """known-faults | 25: systems of the transpose and the conjugate transpose."""
    for columns in (0, 2):
        for result in ranks(n, solved, form, {"rtol": 1e-10}, columns, view):
            check(result)


@pytest.mark.parametrize("method", ["cg", "minres", "gmres", "bicgstab"])
def test_a_rank_without_rows_takes_part_in_every_method(ranks: RankPool, method: str) -> None:
    options = {"method": method, "rtol": 1e-10}
    for columns in (0, 2):
        for result in ranks(2, solved, Hermitian, options, columns, "", NOTHING_OWNED):
            check(result)


def refused(device_mesh: DeviceMesh) -> dict[str, Any]:
    _, K, b = system_of(device_mesh, Advection)
    _, S, _ = system_of(device_mesh, Shifted)
    _, H, _ = system_of(device_mesh, Above)
    _, Z, pair = system_of(device_mesh, Saddle)
    return {
        "cg": outcome(K.solve, b, method="cg"),
        "minres": outcome(K.solve, b, method="minres"),
        "wave": outcome(system_of(device_mesh, Wave)[1].solve, b, method="minres"),
        "indefinite": outcome(S.solve, b, method="cg"),
        "diagonal": outcome(H.solve, b, method="cg"),
        "zeros": outcome(Z.solve, pair, preconditioner="jacobi"),
        "few": outcome(K.solve, b, method="gmres", maxiter=3),
        "restart": outcome(K.solve, b, restart=0),
        "guess": outcome(K.solve, torch.stack([b, b], 1), x0=b),
        "columns": outcome(K.solve, b.new_zeros(len(b), 0)),
    }


@pytest.mark.parametrize("n", [1, 3])
def test_a_method_that_does_not_fit_is_refused_by_name(ranks: RankPool, n: int) -> None:
    """known-faults | 24: conjugate gradients for such a matrix: an error, on every rank."""
    for found in ranks(n, refused):
        for name in ("cg", "minres", "wave"):
            assert found[name][0] == "ValueError"
            assert "not symmetric" in found[name][1]
            assert "gmres" in found[name][1]
        assert found["indefinite"][0] == "NotConvergedError"
        assert "not positive definite" in found["indefinite"][1]
        assert "minres" in found["diagonal"][1]
        assert found["zeros"][0] == "ValueError"
        assert "'jacobi'" in found["zeros"][1]
        assert found["few"][0] == "NotConvergedError"
        assert "3 iterations" in found["few"][1]
        assert "restart" in found["restart"][1]
        assert "x0" in found["guess"][1]
        assert "columns" in found["columns"][1]


class Halving:
    """A preconditioner of the user's."""

    name = "halving"

    def __init__(self, factor: float = 0.5) -> None:
        self.factor = factor

    def __matmul__(self, r: Tensor) -> Tensor:
        return self.factor * r


def with_object(device_mesh: DeviceMesh) -> dict[str, Any]:
    _, K, b = system_of(device_mesh, Advection)
    M = Halving()
    x, info = K.solve(b, preconditioner=M, rtol=1e-11, return_info=True)
    again = K.solve(2 * b, preconditioner=M, rtol=1e-11)
    right = K.solve(b, rtol=1e-11)
    unit = 2.0**-700
    scaled = (K * unit).solve(b * unit, preconditioner=Halving(0.5 / unit), rtol=1e-11)
    return {
        "name": info.preconditioner,
        "errors": [float((y - right).abs().max()) for y in (x, again / 2, scaled)],
        "text": outcome(K.solve, b, preconditioner=3),
    }


def test_a_preconditioner_of_the_users(ranks: RankPool) -> None:
    for found in ranks(2, with_object):
        assert found["name"] == "halving"
        assert max(found["errors"]) < 1e-8
        assert found["text"][0] == "ValueError"


def told(device_mesh: DeviceMesh) -> tuple[list[tuple[int, float]], list[float]]:
    calls: list[tuple[int, float]] = []
    _, K, b = system_of(device_mesh, Advection)
    _, info = K.solve(b, callback=lambda i, r: calls.append((i, r)), return_info=True)
    return calls, info.history


def test_a_callback_hears_of_each_iteration(ranks: RankPool) -> None:
    for calls, history in ranks(2, told):
        assert calls == list(enumerate(history, start=1))


def messages(device_mesh: DeviceMesh, method: str, columns: int) -> tuple[int, int]:
    _, K, b = system_of(device_mesh, Hermitian)
    b = torch.stack([b] * columns, dim=1)
    count = []
    for maxiter in (3, 8):
        with recorded() as sent:
            K.solve(b, method=method, maxiter=maxiter, on_failure="return", rtol=1e-14)
        count.append(len(list(sent)))
    return count[1] - count[0], 5


# Products, whose ghosts travel in one message, and sums.
MESSAGES = {"cg": 1 + 1, "minres": 1 + 2, "gmres": 1 + 2, "bicgstab": 2 + 2}


@pytest.mark.parametrize("method", MESSAGES)
@pytest.mark.parametrize("columns", [1, 3])
def test_an_iteration_sends_few_messages(ranks: RankPool, method: str, columns: int) -> None:
    for sent, iterations in ranks(2, messages, method, columns):
        assert sent == MESSAGES[method] * iterations


@pytest.mark.parametrize("form", [Advection, Coupled, Wave, Saddle])
@pytest.mark.parametrize("view", ["", "T"])
def test_small_systems_are_solved_directly(
    ranks: RankPool, form: type[tm.ElementAssembler], view: str
) -> None:
    """features | method direct: distributed."""
    for n, columns in ((1, 0), (2, 2), (3, 0)):
        for result in ranks(n, solved, form, {"method": "direct"}, columns, view):
            exact = spl.spsolve(result["A"], result["b"])
            np.testing.assert_allclose(result["x"], exact, atol=1e-11 * abs(exact).max())
            assert (result["info"].method, result["info"].iterations) == ("direct", 0)
            assert result["info"].residual < 1e-12


def gradient_of_both(device_mesh: DeviceMesh) -> list[Tensor]:
    dmesh, K, b = system_of(device_mesh, Advection, NOTHING_OWNED)
    found = []
    for options in ({"method": "direct"}, {"rtol": 1e-13}):
        values = K.values.clone().requires_grad_()
        x = tm.DSparseMatrix.from_layout(K.layout, values).solve(b, **options)
        (grad,) = torch.autograd.grad(dmesh.dot(x, x * x), values)
        found.append(grad)
    return found


def test_both_ways_have_one_gradient(ranks: RankPool) -> None:
    for direct, iterated in ranks(2, gradient_of_both):
        torch.testing.assert_close(direct, iterated, rtol=1e-8, atol=1e-9)


def too_large(device_mesh: DeviceMesh) -> Any:
    dmesh = tm.DistributedMesh(tm.Mesh.gen_rectangle(n=(250, 250)), device_mesh=device_mesh)
    M = tm.distributed_element_assemble(tm.MassElementAssembler, dmesh)
    return outcome(M.solve, torch.ones(M.layout.n_owned, dtype=M.dtype), method="direct")


def test_a_large_matrix_is_not_gathered(ranks: RankPool) -> None:
    for error in ranks(2, too_large):
        assert error[0] == "ValueError"
        assert "63001" in error[1]
