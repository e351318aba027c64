"""Eigenpairs of sharded matrices: against theory, scipy and finite differences."""

from typing import Any

import numpy as np
import pytest
import scipy.linalg as sl
import scipy.sparse.linalg as spl
import torch

import tensormesh as tm
from tensormesh.distributed.device_mesh import DeviceMesh
from tests.distributed.cases import dmesh_of, outcome
from tests.rank_pool import RankPool

# Of the Laplacian on the unit square, held on the boundary: pi^2 (i^2 + j^2).
EXACT = np.pi**2 * np.array([2, 5, 5, 8, 10, 10, 13, 13, 17, 17])


def pair(device_mesh: DeviceMesh, n: int, order: int = 1) -> tuple[Any, Any, Any]:
    mesh = tm.Mesh.gen_rectangle(n=(n, n), order=order)
    dmesh = dmesh_of(mesh, device_mesh)
    K = tm.distributed_element_assemble(tm.LaplaceElementAssembler, dmesh)
    M = tm.distributed_element_assemble(tm.MassElementAssembler, dmesh)
    condenser = tm.Condenser(mesh.boundary_mask)
    return condenser(K)[0], condenser(M)[0], dmesh


def laplacian(device_mesh: DeviceMesh, n: int, order: int, preconditioner: str) -> dict[str, Any]:
    K, M, _ = pair(device_mesh, n, order)
    values, vectors = K.eigsh(10, "SA", M=M, preconditioner=preconditioner)
    gather = K.layout.vectors.gather
    return {
        "values": values.numpy(),
        "vectors": gather(vectors).numpy(),
        "K": K.to_single().to_scipy_coo().tocsc(),
        "M": M.to_single().to_scipy_coo().tocsc(),
        "serial": K.to_single().eigsh(10, "SA", M=M.to_single())[0].numpy(),
    }


@pytest.mark.parametrize(
    ("n", "cells", "order", "preconditioner"),
    [(1, 16, 1, "jacobi"), (2, 16, 1, "multilevel"), (3, 12, 2, "multilevel"), (3, 24, 1, "auto")],
)
def test_laplacian_of_the_square(
    ranks: RankPool, n: int, cells: int, order: int, preconditioner: str
) -> None:
    """features | eigsh with a mass: serial, distributed."""
    for found in ranks(n, laplacian, cells, order, preconditioner):
        K, M, values, X = (found[name] for name in ("K", "M", "values", "vectors"))
        reference = np.sort(spl.eigsh(K, 10, M, sigma=0, return_eigenvectors=False))
        np.testing.assert_allclose(values, reference, rtol=1e-8)
        np.testing.assert_allclose(found["serial"], reference, rtol=1e-8)
        # Galerkin's are above, by at most C h^(2p) lambda^(p+1) (Strang, Fix, theorem 6.1).
        error = (values - EXACT) / EXACT
        assert (error > 0).all()
        assert (error < (EXACT / cells**2) ** order).all()
        np.testing.assert_allclose(X.T @ (M @ X), np.eye(10), atol=1e-9)
        residual = np.linalg.norm(K @ X - M @ X * values, axis=0)
        assert (residual < 2e-8 * np.linalg.norm(M @ X * values, axis=0).max()).all()


def ends(device_mesh: DeviceMesh) -> dict[str, Any]:
    """Both ends of a free body, without a mass, and of few unknowns."""
    mesh = tm.Mesh.gen_rectangle(n=(9, 8))
    dmesh = dmesh_of(mesh, device_mesh)
    K = tm.distributed_element_assemble(tm.LinearElasticityElementAssembler, dmesh)
    small, _, _ = pair(device_mesh, 4)
    return {
        "K": K.to_single().to_dense().numpy(),
        "smallest": K.eigsh(6, "SA", rtol=1e-6)[0].numpy(),
        "largest": K.eigsh(2, "LA", return_eigenvectors=False, rtol=1e-6)[0].numpy(),
        "small": small.eigsh(3, "SA")[0].numpy(),
        "small K": small.to_single().to_dense().numpy(),
    }


def test_both_ends_and_few_unknowns(ranks: RankPool) -> None:
    """features | eigsh: distributed."""
    for found in ranks(3, ends):
        exact = sl.eigvalsh(found["K"])
        np.testing.assert_allclose(found["smallest"], exact[:6], rtol=1e-8, atol=1e-9 * exact[-1])
        assert abs(found["smallest"][:3]).max() < 1e-9 * exact[-1]  # rigid motions
        np.testing.assert_allclose(found["largest"], exact[-2:], rtol=1e-8)
        np.testing.assert_allclose(found["small"], sl.eigvalsh(found["small K"])[:3], rtol=1e-12)


def slopes(device_mesh: DeviceMesh) -> dict[str, Any]:
    """Derivative of eigenvalues by a factor of the entries that differs from row to row."""
    K, M, _ = pair(device_mesh, 12)

    def weights(A: Any) -> torch.Tensor:
        x = 1 + torch.sin(A.layout.owned_dofs.double())
        local = A.layout.with_ghosts(x)
        return local[A.row_indices] * local[A.col_indices]

    def first(s: float, t: float) -> torch.Tensor:
        k, m = (A._with_values(A.values * torch.exp(c * weights(A))) for A, c in ((K, s), (M, t)))
        return k.eigsh(1, "SA", M=m, preconditioner="multilevel")[0][0]

    k = K._with_values(K.values.clone().requires_grad_())
    m = M._with_values(M.values.clone().requires_grad_())
    value = k.eigsh(1, "SA", M=m, preconditioner="multilevel")[0][0]
    value.backward()
    total = K.layout.vectors.sum
    return {
        "by K": float(total(k.values.grad * K.values * weights(K))),
        "by M": float(total(m.values.grad * M.values * weights(M))),
        "differences": [
            float(first(*up) - first(*down)) / 2e-4
            for up, down in (((1e-4, 0.0), (-1e-4, 0.0)), ((0.0, 1e-4), (0.0, -1e-4)))
        ],
    }


def test_derivatives(ranks: RankPool) -> None:
    """features | eigsh with a mass: differentiable."""
    for found in ranks(2, slopes):
        assert found["by K"] == pytest.approx(found["differences"][0], rel=1e-5)
        assert found["by M"] == pytest.approx(found["differences"][1], rel=1e-5)


def refused(device_mesh: DeviceMesh) -> list[Any]:
    K, M, _ = pair(device_mesh, 12)
    other = pair(device_mesh, 20)[1]
    skew = K._with_values(K.values * (1 + (K.row_indices % 2)))
    return [
        outcome(K.eigsh, 2),
        outcome(K.eigsh, 2, "SA", 1.0),
        outcome(K.eigsh, 0, "SA"),
        outcome(lambda: K.eigsh(2, "SA", M=other)),
        outcome(lambda: K.eigsh(2, "SA", M=M.to_single())),
        outcome(lambda: K.eigsh(2, "SA", preconditioner="amg")),
        outcome(lambda: K.eigsh(2, "SA", M=M, maxiter=1)),
        outcome(skew.eigsh, 2, "SA"),
    ]


def test_refusals(ranks: RankPool) -> None:
    expected = [
        ("NotImplementedError", "which = 'LM'"),
        ("NotImplementedError", "sigma = 1.0"),
        ("ValueError", "got 0"),
        ("ValueError", "another partition"),
        ("TypeError", "SparseMatrix"),
        ("ValueError", "'amg'"),
        ("NotConvergedError", "1 iterations"),
        ("ValueError", "symmetric"),
    ]
    for found in ranks(2, refused):
        for error, (kind, text) in zip(found, expected, strict=True):
            assert error is not None, text
            assert error[0] == kind
            assert text in error[1]


def negative_mass(device_mesh: DeviceMesh) -> str:
    K, M, _ = pair(device_mesh, 8)
    try:
        (K + M).eigsh(3, "SA", M=M * -1.0)
    except ValueError as error:
        return str(error)
    return "nothing"


def test_a_mass_of_negative_directions_is_refused(ranks: RankPool) -> None:
    for found in ranks(2, negative_mass):
        assert "M is not positive definite" in found


def mass_of(u, v):
    return u * v * torch.eye(2, dtype=u.dtype)


def free_body(device_mesh: DeviceMesh, dtype: torch.dtype) -> dict[str, Any]:
    """All that is wanted is zero: the rigid motions of a body that nothing holds."""
    mesh = tm.Mesh.gen_rectangle(n=(9, 8)).to(dtype)
    dmesh = dmesh_of(mesh, device_mesh)
    K = tm.distributed_element_assemble(tm.LinearElasticityElementAssembler, dmesh)
    M = tm.distributed.distributed(tm.ElementAssembler).from_mesh(dmesh)(func=mass_of)
    found = {
        "alone": K.eigsh(3, "SA"),
        "mass": K.eigsh(3, "SA", M=M),
        "two": K.eigsh(2, "SA", M=M, preconditioner="none"),
        "levels": K.eigsh(3, "SA", M=M, preconditioner="multilevel"),
    }
    gather = K.layout.vectors.gather
    return {name: (w, gather(x)) for name, (w, x) in found.items()} | {
        "K": K.to_single().to_dense().double(),
        "M": M.to_single().to_dense().double(),
    }


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_rigid_motions_are_found_where_nothing_else_is_wanted(
    ranks: RankPool, dtype: torch.dtype
) -> None:
    eps = torch.finfo(dtype).eps
    for found in ranks(2, free_body, dtype):
        size = float(torch.linalg.eigvalsh(found["K"]).max())
        of_mass = float(torch.linalg.eigvalsh(found["M"]).min())
        for name in ("alone", "mass", "two", "levels"):
            unit = size if name == "alone" else size / of_mass
            w, x = found[name]
            assert w.dtype == x.dtype == dtype
            assert w.abs().max() < 100 * eps * unit
            x = x.double()
            assert (found["K"] @ x).norm(dim=0).max() < 1e5 * eps * size * x.norm(dim=0).max()


def needle(device_mesh: DeviceMesh) -> tuple[int, Any, Any]:
    """A mass that is negative in one direction only, of two neighbouring unknowns."""
    K, M, _ = pair(device_mesh, 12)
    numbers = M.layout.with_ghosts(M.layout.owned_dofs.double())
    row, col = numbers[M.row_indices], numbers[M.col_indices]
    chosen = ((row == 84) & (col == 85)) | ((row == 85) & (col == 84))
    changed = M._with_values(torch.where(chosen, 1.5 * M.values.max(), M.values))
    single = outcome(K.to_single().eigsh, 2, "SA", M=changed.to_single())
    return int(chosen.sum()), outcome(K.eigsh, 2, "SA", M=changed), single


def test_a_mass_that_is_negative_in_one_direction_is_refused(ranks: RankPool) -> None:
    found = ranks(2, needle)
    assert sum(n for n, _, _ in found) == 2
    for _, *errors in found:
        for error in errors:
            assert error is not None
            assert error[0] == "ValueError"
            assert "M is not positive definite" in error[1]


class Fails:
    name = "fails"

    def __init__(self, here: bool) -> None:
        self.left = 3 if here else -1

    def __matmul__(self, r: torch.Tensor) -> torch.Tensor:
        self.left -= 1
        if self.left == 0:
            raise ArithmeticError("no more")
        return r


def failing(device_mesh: DeviceMesh) -> Any:
    K, M, _ = pair(device_mesh, 12)
    M_of_user = Fails(device_mesh.get_local_rank() == 1)
    return outcome(K.eigsh, 2, "SA", M=M, preconditioner=M_of_user)


def test_a_preconditioner_that_fails_on_one_rank_is_raised_on_all(ranks: RankPool) -> None:
    assert ranks(3, failing) == [("ArithmeticError", "no more")] * 3
