"""Solving sharded systems: the answer, what is reported of it, and what is refused."""

import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse.linalg as spl
import torch
from torch import Tensor

import tensormesh as tm
from tensormesh.distributed.device_mesh import DeviceMesh
from tests.distributed.cases import NOTHING_OWNED, dmesh_of, mesh_of, outcome
from tests.rank_pool import RankPool

SIZES = [1, 2, 3, 4]
Prepared = tuple[tm.DistributedMesh, tm.DSparseMatrix, Tensor, tm.Condenser | None]


class Bump(tm.NodeAssembler):
    def forward(self, v, x):
        return v * torch.exp(x[0] + 2 * x[1])


class Pull(tm.NodeAssembler):
    """A body force that neither translations nor rotations are orthogonal to."""

    def forward(self, v, x):
        return v * torch.stack([1.0 + x[1], x[0] * x[1]])


class Twist(tm.NodeAssembler):
    """Sums to zero in each component, but turns the unit square about its centre."""

    def forward(self, v, x):
        return v * torch.stack([0.5 - x[1], x[0] - 0.5])


# ---- systems: a function of the device mesh each; vectors are owned slices ----


def poisson(device_mesh: DeviceMesh) -> Prepared:
    mesh = mesh_of("tri")
    dmesh = dmesh_of(mesh, device_mesh)
    K = tm.distributed_element_assemble(tm.LaplaceElementAssembler, dmesh)
    f = tm.distributed_node_assemble(Bump, dmesh)
    condenser = tm.Condenser(mesh.boundary_mask, mesh.points.sum(1))
    return dmesh, *condenser(K, f), condenser


def elasticity(device_mesh: DeviceMesh) -> Prepared:
    mesh = mesh_of("quad")
    dmesh = dmesh_of(mesh, device_mesh, "metis")
    K = tm.distributed_element_assemble(tm.LinearElasticityElementAssembler, dmesh, E=5.0)
    f = tm.distributed_node_assemble(Pull, dmesh)
    fixed = (mesh.points[:, 0] == 0).repeat_interleave(2)
    condenser = tm.Condenser(fixed)
    return dmesh, *condenser(K, f), condenser


def neumann(device_mesh: DeviceMesh, load: type[tm.NodeAssembler] = Bump) -> Prepared:
    dmesh = dmesh_of(mesh_of("tri"), device_mesh)
    K = tm.distributed_element_assemble(tm.LaplaceElementAssembler, dmesh)
    return dmesh, K, tm.distributed_node_assemble(load, dmesh), None


def floating(device_mesh: DeviceMesh, load: type[tm.NodeAssembler] = Pull) -> Prepared:
    dmesh = dmesh_of(tm.Mesh.gen_rectangle(n=(6, 5)), device_mesh)
    K = tm.distributed_element_assemble(tm.LinearElasticityElementAssembler, dmesh)
    return dmesh, K, tm.distributed_node_assemble(load, dmesh), None


def one_pin(device_mesh: DeviceMesh) -> Prepared:
    """One corner is held: the body still turns about it."""
    mesh = tm.Mesh.gen_rectangle(n=(6, 5))
    dmesh = dmesh_of(mesh, device_mesh)
    K = tm.distributed_element_assemble(tm.LinearElasticityElementAssembler, dmesh)
    condenser = tm.Condenser((mesh.points.norm(dim=1) == 0).repeat_interleave(2))
    return dmesh, *condenser(K, tm.distributed_node_assemble(Pull, dmesh)), condenser


def roller(device_mesh: DeviceMesh) -> Prepared:
    """The bottom may slide: a translation is free."""
    mesh = tm.Mesh.gen_rectangle(n=(6, 5))
    dmesh = dmesh_of(mesh, device_mesh)
    K = tm.distributed_element_assemble(tm.LinearElasticityElementAssembler, dmesh)
    held = torch.stack([torch.zeros(mesh.n_points).bool(), mesh.points[:, 1] == 0], dim=1)
    condenser = tm.Condenser(held.flatten())
    return dmesh, *condenser(K, tm.distributed_node_assemble(Pull, dmesh)), condenser


def with_orphans(device_mesh: DeviceMesh) -> Prepared:
    """Points that no cell uses have no equation."""
    base = tm.Mesh.gen_rectangle(n=(5, 4))
    points = torch.cat([base.points[:7], torch.ones(2, 2), base.points[7:], torch.ones(1, 2)])
    cells = {k: c + 2 * (c >= 7) for k, c in base.cells.to_dict().items()}
    mesh = tm.Mesh.from_arrays(points, cells)
    dmesh = dmesh_of(mesh, device_mesh)
    K = tm.distributed_element_assemble(tm.LaplaceElementAssembler, dmesh)
    condenser = tm.Condenser(mesh.boundary_mask, mesh.points.sum(1))
    return dmesh, *condenser(K, tm.distributed_node_assemble(Bump, dmesh)), condenser


class Hermitian(tm.ElementAssembler):
    def forward(self, u, v, gradu, gradv):
        return gradu @ gradv + u * v + 0.5j * (gradu[0] * v - u * gradv[0])


def hermitian(device_mesh: DeviceMesh) -> Prepared:
    dmesh = dmesh_of(mesh_of("tri"), device_mesh)
    K = tm.distributed_element_assemble(Hermitian, dmesh)
    f = tm.distributed_node_assemble(Bump, dmesh)
    return dmesh, K, f * (1.0 + 2.0j), None


SYSTEMS = (poisson, elasticity, with_orphans, hermitian)


def solved(
    device_mesh: DeviceMesh, system: Callable[[DeviceMesh], Prepared], options: dict[str, Any]
) -> dict[str, Any]:
    """Solution and report, and everything that the driver needs to check both."""
    _, A, b, _ = system(device_mesh)
    x, info = A.solve(b, return_info=True, **options)
    whole = A.to_single()
    vectors = A.layout.vectors
    return {
        "A": whole.to_scipy_coo().tocsr(),
        "b": vectors.gather(b).numpy(),
        "x": vectors.gather(x).numpy(),
        "info": info,
    }


def relative_residual(result: dict[str, Any]) -> float:
    r = result["b"] - result["A"] @ result["x"]
    return float(np.linalg.norm(r) / np.linalg.norm(result["b"]))


def exact(result: dict[str, Any]) -> np.ndarray:
    """Direct solution by another library; rows without an entry are left out."""
    used = np.flatnonzero(np.diff(result["A"].indptr))
    x = np.zeros_like(result["x"])
    x[used] = spl.spsolve(result["A"][used][:, used].tocsc(), result["b"][used])
    return x


@pytest.mark.parametrize("system", SYSTEMS)
def test_any_number_of_ranks_finds_the_solution(
    ranks: RankPool, system: Callable[[DeviceMesh], Prepared]
) -> None:
    """distributed-api DSparseMatrix | `solve`: the solution of one process."""
    iterations = []
    for n in SIZES:
        for result in ranks(n, solved, system, {"rtol": 1e-11}):
            info = result["info"]
            np.testing.assert_allclose(result["x"], exact(result), rtol=1e-8, atol=1e-9)
            assert info.converged
            assert info.reason == "converged"
            assert relative_residual(result) <= 1.01e-11
            assert info.residual == pytest.approx(relative_residual(result), rel=0.05, abs=1e-15)
            assert len(info.history) == info.iterations > 3
            assert (info.method, info.preconditioner) == ("cg", "jacobi")
            iterations.append(info.iterations)
    assert max(iterations) - min(iterations) <= 1


@pytest.mark.parametrize(
    ("options", "tolerance"),
    [
        ({"rtol": 1e-3}, 1e-3),
        ({"preconditioner": "none"}, 1e-8),
        ({"preconditioner": "jacobi", "method": "cg"}, 1e-8),
        ({"rtol": 0.0, "atol": 1e-6}, 1e-6),
    ],
)
def test_tolerances_and_preconditioners(
    ranks: RankPool, options: dict[str, Any], tolerance: float
) -> None:
    """features | method cg: distributed."""
    for result in ranks(2, solved, poisson, options):
        scale = np.linalg.norm(result["b"]) if "atol" in options else 1.0
        assert relative_residual(result) * scale <= 1.01 * tolerance
        assert result["info"].preconditioner == options.get("preconditioner", "jacobi")


def from_a_guess(device_mesh: DeviceMesh) -> tuple[int, int, int, bool]:
    _, A, b, _ = poisson(device_mesh)
    x, cold = A.solve(b, return_info=True)
    kept = x.clone()
    _, warm = A.solve(b, x0=x, rtol=1e-7, return_info=True)
    near, half = A.solve(b, x0=0.999 * x, return_info=True)
    same = torch.equal(x, kept) and torch.allclose(near, x, rtol=1e-5)
    return cold.iterations, warm.iterations, half.iterations, same


def test_a_guess_saves_iterations_and_is_not_changed(ranks: RankPool) -> None:
    for cold, warm, near, same in ranks(3, from_a_guess):
        assert warm == 0
        assert near < cold
        assert same


def zero_load(device_mesh: DeviceMesh) -> list[tuple[float, bool, int]]:
    _, A, b, _ = poisson(device_mesh)
    found = []
    for x0 in (None, torch.ones_like(b)):
        x, info = A.solve(torch.zeros_like(b), x0=x0, return_info=True)
        found.append((float(x.abs().sum()), info.converged, info.iterations))
    return found


def test_zero_load_has_zero_solution(ranks: RankPool) -> None:
    assert ranks(3, zero_load) == [[(0.0, True, 0)] * 2] * 3


def single_precision(device_mesh: DeviceMesh) -> tuple[torch.dtype, float, float]:
    _, A, b, _ = poisson(device_mesh)
    x, info = A.float().solve(b.float(), rtol=1e-5, return_info=True)
    residual = b - A @ x.double()
    vectors = A.layout.vectors
    return x.dtype, float(vectors.norm(residual) / vectors.norm(b)), info.residual


def test_single_precision(ranks: RankPool) -> None:
    for dtype, residual, reported in ranks(3, single_precision):
        assert dtype == torch.float32
        assert residual <= 2e-5
        assert reported <= 1e-5


def rows_somewhere(device_mesh: DeviceMesh) -> tuple[int, float]:
    dmesh = dmesh_of(mesh_of("grid"), device_mesh, NOTHING_OWNED)
    M = tm.distributed_element_assemble(tm.MassElementAssembler, dmesh)
    f = tm.distributed_node_assemble(tm.const_node_assembler(3.0), dmesh)
    x = M.solve(f, rtol=1e-12)
    return len(x), float((dmesh.gather(x) - 3.0).abs().max())


def solutions_in_units(
    device_mesh: DeviceMesh, dtype: torch.dtype, units: list[tuple[int, int]]
) -> list[Tensor]:
    """``2**b A x = 2**c b`` for each pair, with a guess and without, times ``2**(b - c)``."""
    _, A, b, _ = poisson(device_mesh)
    A, b, found = A.to(dtype=dtype), b.to(dtype), []
    for of_A, of_b in units:
        scaled, right = A * 2.0**of_A, b * 2.0**of_b
        for x0 in (None, right * 2.0**-of_A):
            x = scaled.solve(right, rtol=1e-4, atol=2.0**of_b * 1e-9, x0=x0)
            found.append(A.layout.vectors.gather(x) * 2.0 ** (of_A - of_b))
    return found


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize(
    ("dtype", "units"),
    [
        (torch.float64, [(0, 0), (-700, 0), (700, 0), (0, -700), (0, 700), (-300, 300)]),
        (torch.float32, [(0, 0), (-80, 0), (80, 0), (0, -80), (0, 80), (-45, 45), (80, 40)]),
    ],
)
def test_units_do_not_matter(
    ranks: RankPool, n: int, dtype: torch.dtype, units: list[tuple[int, int]]
) -> None:
    """Powers of two that a user's units may bring, whose squares are beyond the dtype."""
    for found in ranks(n, solutions_in_units, dtype, units):
        for plain, guessed in zip(found[2::2], found[3::2], strict=True):
            assert torch.equal(plain, found[0])
            assert torch.equal(guessed, found[1])


def test_a_rank_without_rows_takes_part(ranks: RankPool) -> None:
    """The projection of a constant is the constant."""
    found = ranks(2, rows_somewhere)
    assert [n for n, _ in found] == [16, 0]
    assert max(error for _, error in found) < 1e-10


# ---- failures ----


def failures(device_mesh: DeviceMesh) -> dict[str, Any]:
    _, A, b, _ = poisson(device_mesh)
    found: dict[str, Any] = {"raise": outcome(A.solve, b, maxiter=1)}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        x, info = A.solve(b, maxiter=1, on_failure="warn", return_info=True)
    found["warn"] = [(w.category.__name__, str(w.message)) for w in caught]
    y, info = A.solve(b, maxiter=1, on_failure="return", return_info=True)
    r = A.layout.vectors.norm(b - A @ y) / A.layout.vectors.norm(b)
    found["return"] = (info.converged, info.reason, info.iterations, info.residual, float(r))
    found["same"] = torch.equal(x, y)
    found["after"] = A.solve(b, return_info=True)[1].converged
    return found


@pytest.mark.parametrize("n", [1, 3])
def test_an_iteration_that_stops_early_says_so_on_every_rank(ranks: RankPool, n: int) -> None:
    """distributed-api DSparseMatrix | `solve`: `on_failure`, `return_info`: honest."""
    for found in ranks(n, failures):
        name, text = found["raise"]
        assert name == "NotConvergedError"
        assert "1 iterations" in text
        assert "maxiter" in text
        assert [category for category, _ in found["warn"]] == ["RuntimeWarning"]
        converged, reason, iterations, reported, residual = found["return"]
        assert (converged, reason, iterations) == (False, "maxiter", 1)
        assert reported == pytest.approx(residual, rel=1e-10)
        assert residual > 1e-3
        assert found["same"]
        assert found["after"]


def attempt(
    device_mesh: DeviceMesh, system: Callable[..., Prepared], args: tuple[Any, ...]
) -> tuple[Any, float]:
    _, A, b, _ = system(device_mesh, *args)
    start = time.perf_counter()
    return outcome(A.solve, b), time.perf_counter() - start


@pytest.mark.parametrize(
    ("system", "args", "expected", "hint"),
    [
        (neumann, (), ["SingularMatrixError"], "constants"),
        (floating, (), ["SingularMatrixError"], "component 0 of 2"),
        (roller, (), ["SingularMatrixError", "NotConvergedError"], ""),
        (one_pin, (), ["SingularMatrixError", "NotConvergedError"], ""),
        (floating, (Twist,), ["SingularMatrixError", "NotConvergedError"], ""),
    ],
)
@pytest.mark.parametrize("n", [1, 3])
def test_what_has_no_answer_is_an_error_on_every_rank(
    ranks: RankPool,
    n: int,
    system: Callable[..., Prepared],
    args: tuple[Any, ...],
    expected: list[str],
    hint: str,
) -> None:
    found = ranks(n, attempt, system, args)
    assert len({error for error, _ in found}) == 1
    for error, seconds in found:
        assert error is not None
        assert error[0] in expected
        assert hint in error[1]
        assert seconds < 30


def compatible(device_mesh: DeviceMesh) -> tuple[float, bool]:
    """A load that sums to zero: a solution exists, up to a constant."""
    dmesh, A, b, _ = neumann(device_mesh)
    M = tm.distributed_element_assemble(tm.MassElementAssembler, dmesh)
    lumped = M @ torch.ones_like(b)
    b = b - lumped * dmesh.sum(b) / dmesh.sum(lumped)
    x, info = A.solve(b, return_info=True)
    return float(dmesh.norm(A @ x - b) / dmesh.norm(b)), info.converged


@pytest.mark.parametrize("n", [1, 3])
def test_a_compatible_neumann_problem_is_solved(ranks: RankPool, n: int) -> None:
    for residual, converged in ranks(n, compatible):
        assert converged
        assert residual <= 1.01e-8


def without_diagonal(device_mesh: DeviceMesh) -> Any:
    """Rows of points without cells are empty when no Condenser has left them out."""
    base = tm.Mesh.gen_rectangle(n=(4, 3))
    mesh = tm.Mesh.from_arrays(torch.cat([base.points, torch.ones(1, 2)]), base.cells.to_dict())
    dmesh = dmesh_of(mesh, device_mesh)
    M = tm.distributed_element_assemble(tm.MassElementAssembler, dmesh)
    return outcome(M.solve, tm.distributed_node_assemble(Bump, dmesh))


def test_a_row_without_entries_is_named(ranks: RankPool) -> None:
    for error in ranks(3, without_diagonal):
        assert error[0] == "SingularMatrixError"
        assert "unknown 20" in error[1]
