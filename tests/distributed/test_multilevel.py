"""Preconditioners of several levels and of blocks: symmetric, positive, and hardly more steps."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import tensormesh as tm
from tensormesh.distributed.device_mesh import DeviceMesh
from tensormesh.distributed.preconditioner import Multilevel, Schwarz
from tests.distributed.cases import NOTHING_OWNED, dmesh_of, outcome
from tests.distributed.test_multigrid import elastic, poisson
from tests.rank_pool import RankPool


def dense(device_mesh: DeviceMesh, system: Any, args: tuple[Any, ...], make: Any) -> dict[str, Any]:
    """The preconditioner as a matrix, a column for each unknown, and one column by itself."""
    A = system(device_mesh, *args)
    vectors, n = A.layout.vectors, A.shape[0]
    M = make(A)
    columns = vectors.scatter(torch.eye(n, dtype=torch.float64))
    whole = vectors.gather(M @ columns)
    return {
        "M": whole.numpy(),
        "A": A.to_single().to_scipy_coo().toarray(),
        "first": vectors.gather(M @ columns[:, 0]).numpy(),
    }


def double(A: tm.DSparseMatrix) -> Multilevel:
    return Multilevel(A, max_coarse=10, precision=torch.float64)


def blocks(A: tm.DSparseMatrix) -> Schwarz:
    return Schwarz(A, definite=True)


@pytest.mark.parametrize("n", [1, 3, 4])
@pytest.mark.parametrize(("system", "args"), [(poisson, ()), (elastic, ()), (elastic, (False,))])
@pytest.mark.parametrize("make", [double, blocks])
def test_it_is_symmetric_positive_definite(
    ranks: RankPool, n: int, system: Any, args: tuple[Any, ...], make: Any
) -> None:
    """features | Multilevel, Schwarz: distributed."""
    if make is blocks and args == (False,):
        return  # one rank alone would have to invert a singular matrix
    for found in ranks(n, dense, system, args, make):
        M = found["M"]
        np.testing.assert_allclose(M, M.T, atol=1e-12 * abs(M).max())
        assert np.linalg.eigvalsh((M + M.T) / 2)[0] > 0
        np.testing.assert_allclose(found["first"], M[:, 0], atol=1e-12 * abs(M).max())


def test_one_cycle_reduces_every_error(ranks: RankPool) -> None:
    """Eigenvalues of ``M A`` are positive and at most one: of ``I - M A`` none is beyond one."""
    for system in (poisson, elastic):
        found = ranks(2, dense, system, (), double)[0]
        eigenvalues = np.linalg.eigvals(found["M"] @ found["A"]).real
        assert 0.05 < eigenvalues.min()
        assert eigenvalues.max() < 1.0 + 1e-10


# ---- iterations ----


def poisson_of(device_mesh: DeviceMesh, n: int, jump: float) -> tuple[tm.DSparseMatrix, Tensor]:
    """Cube, held on one side; the coefficient changes by a factor from cell to cell at random."""
    mesh = tm.Mesh.gen_cube(n=(n, n, n))
    dmesh = dmesh_of(mesh, device_mesh)
    generator = torch.Generator().manual_seed(0)
    k = torch.where(torch.rand(mesh.n_elements, generator=generator) < 0.5, 1.0, jump).double()
    K = tm.distributed_element_assemble(Diffusion, dmesh, call_kwargs={"element_data": {"k": k}})
    f = tm.distributed_node_assemble(tm.const_node_assembler(1.0), dmesh)
    return tm.Condenser(mesh.points[:, 0] == 0)(K, f)


class Diffusion(tm.ElementAssembler):
    def forward(self, gradu, gradv, k):
        return k * (gradu @ gradv)


def steps(device_mesh: DeviceMesh, n: int, jump: float) -> dict[str, Any]:
    A, b = poisson_of(device_mesh, n, jump)
    found = {}
    for name in ("jacobi", "schwarz", "multilevel"):
        x, info = A.solve(b, preconditioner=name, return_info=True)
        residual = A.layout.vectors.norm(b - A @ x) / A.layout.vectors.norm(b)
        assert info.converged
        assert info.preconditioner == name
        assert residual < 1.01e-8
        found[name] = info.iterations
    return found


@pytest.mark.parametrize("jump", [1.0, 1e4])
def test_iterations_hardly_depend_on_the_number_of_ranks(ranks: RankPool, jump: float) -> None:
    """features | preconditioner multilevel, preconditioner schwarz: distributed."""
    found = [ranks(n, steps, 11, jump)[0] for n in (1, 2, 3, 4)]
    assert max(f["multilevel"] for f in found) <= 1.3 * found[0]["multilevel"]
    assert all(f["multilevel"] < f["jacobi"] / 2 for f in found)
    assert all(f["multilevel"] < f["schwarz"] for f in found[1:])


def test_iterations_hardly_depend_on_the_mesh_or_on_jumps(ranks: RankPool) -> None:
    small, large = (ranks(2, steps, n, 1.0)[0] for n in (8, 16))
    jumps = ranks(2, steps, 16, 1e4)[0]
    assert large["multilevel"] <= 1.3 * small["multilevel"]
    assert jumps["multilevel"] <= 2 * large["multilevel"]
    assert large["jacobi"] > 1.5 * small["jacobi"]


def beam(device_mesh: DeviceMesh) -> dict[str, Any]:
    """A slender beam, clamped at one end, its load downwards; one side slides as well."""
    mesh = tm.Mesh.gen_cube(n=(24, 4, 4))
    mesh.points = mesh.points * torch.tensor([6.0, 1.0, 1.0], dtype=torch.float64)
    dmesh = dmesh_of(mesh, device_mesh)
    K = tm.distributed_element_assemble(tm.LinearElasticityElementAssembler, dmesh, E=3.0)
    fixed = (mesh.points[:, :1] == 0).repeat(1, 3)
    fixed[:, 1] |= mesh.points[:, 1] == 0
    condenser = tm.Condenser(fixed.flatten())
    A, _ = condenser(K)
    modes = dmesh.rigid_modes()
    b = condenser.restrict(modes[:, 2]) + 0.1 * condenser.restrict(modes[:, 5])
    rigid = Multilevel(A, near_null_space=condenser.restrict(modes), max_coarse=100)
    return {
        "modes": dmesh.gather(modes),
        "rigid": A.solve(b, preconditioner=rigid, return_info=True)[1].iterations,
        "default": A.solve(b, preconditioner="multilevel", return_info=True)[1].iterations,
        "complexity": rigid.operator_complexity,
        "sizes": rigid.sizes,
    }


def test_rigid_motions_help_elasticity_on_any_number_of_ranks(ranks: RankPool) -> None:
    """features | rigid_modes, Multilevel: distributed."""
    found = [ranks(n, beam)[0] for n in (1, 2, 4)]
    for f in found:
        torch.testing.assert_close(f["modes"], found[0]["modes"])
        assert f["rigid"] <= 1.5 * found[0]["rigid"]
        assert f["rigid"] < f["default"]
        assert f["complexity"] < 1.5
        assert f["sizes"][1] < f["sizes"][0] / 3


# ---- how it is asked for ----


def asked(device_mesh: DeviceMesh) -> dict[str, Any]:
    A, b = poisson_of(device_mesh, 18, 1.0)
    small, _ = poisson_of(device_mesh, 6, 1.0)
    ones = torch.ones(small.layout.n_owned, dtype=torch.float64)
    M = Multilevel(A)
    options: dict[str, Any] = {"return_info": True, "preconditioner": M}
    both = torch.stack([b, 1e-30 * b.flip(0)], dim=1)
    x, info = A.solve(both, **options)
    residual = (both - A @ x).norm(dim=0) / both.norm(dim=0)
    single = A.float().solve(b.float(), preconditioner="multilevel", rtol=1e-3, return_info=True)[1]
    units = [(A * 2.0**e).solve(b, return_info=True)[1] for e in (0, -600, 600)]
    return {
        "auto": A.solve(b, return_info=True)[1].preconditioner,
        "small": small.solve(ones, return_info=True)[1].preconditioner,
        "object": (info.preconditioner, info.iterations),
        "residual": float(residual.max()),
        "float32": (single.preconditioner, single.iterations),
        "units": [(u.preconditioner, u.iterations) for u in units],
    }


@pytest.mark.parametrize("n", [1, 3])
def test_large_symmetric_systems_get_levels_by_themselves(ranks: RankPool, n: int) -> None:
    for found in ranks(n, asked):
        assert (found["auto"], found["small"]) == ("multilevel", "jacobi")
        assert found["object"][0] == "multilevel"
        assert found["object"][1] < 25
        assert found["residual"] < 2e-8
        assert found["float32"][0] == "multilevel"
        assert found["float32"][1] < 20
        assert len(set(found["units"])) == 1


def without_rows(device_mesh: DeviceMesh) -> tuple[int, bool, float]:
    A = poisson(device_mesh, NOTHING_OWNED)
    b = torch.ones(A.layout.n_owned, dtype=torch.float64)
    x, info = A.solve(b, preconditioner=Multilevel(A, max_coarse=2), return_info=True)
    return len(b), info.converged, float(A.layout.vectors.norm(A @ x - b))


def test_a_rank_without_rows_takes_part(ranks: RankPool) -> None:
    found = ranks(2, without_rows)
    assert found[0][0] > found[1][0] == 0
    assert all(converged and error < 1e-7 for _, converged, error in found)


def refused(device_mesh: DeviceMesh) -> dict[str, Any]:
    A = poisson(device_mesh)
    first = device_mesh.get_local_rank() == 0
    some = torch.ones(A.layout.n_owned - first, 1, dtype=torch.float64)
    negative = A * (-1.0 if first else 1.0)
    return {
        "complex": outcome(Multilevel, A.to(dtype=torch.complex128)),
        "negative": outcome(Multilevel, negative),
        "vectors": outcome(Multilevel, A, some),
        "theta": outcome(Multilevel, A, None, 1.5),
        "degree": outcome(Multilevel, A, degree=0),
        "precision": outcome(Multilevel, A, precision=torch.float16),
        "r": outcome(lambda: Multilevel(A) @ torch.ones(A.layout.n_owned + 1)),
    }


def test_what_does_not_fit_is_refused_on_every_rank(ranks: RankPool) -> None:
    expected = {
        "complex": ("TypeError", "complex128"),
        "negative": ("ValueError", "not positive"),
        "vectors": ("ValueError", "near_null_space"),
        "theta": ("ValueError", "1.5"),
        "degree": ("ValueError", "degree"),
        "precision": ("ValueError", "float16"),
        "r": ("ValueError", "owned slice"),
    }
    for found in ranks(3, refused):
        for case, (kind, text) in expected.items():
            assert found[case][0] == kind
            assert text in found[case][1]
