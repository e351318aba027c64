"""Numbers that are not finite, or whose squares are not; eigenvalues that are equal."""

import math

import numpy as np
import pytest
import scipy.linalg as sl
import torch

import tensormesh as tm
from tensormesh.assemble import LinearElasticityElementAssembler, MassElementAssembler
from tensormesh.sparse import SparseMatrix

ITERATIVE = ("cg", "minres", "gmres", "bicgstab")


def tridiagonal(n: int = 12) -> SparseMatrix:
    i = torch.arange(n)
    row, col = torch.cat([i, i[1:], i[:-1]]), torch.cat([i, i[:-1], i[1:]])
    values = torch.cat([torch.full((n,), 2.5), torch.full((2 * n - 2,), -1.0)]).double()
    return SparseMatrix(values, row, col, (n, n))


@pytest.mark.parametrize("method", ["auto", "direct", *ITERATIVE])
@pytest.mark.parametrize("bad", [math.inf, math.nan])
def test_a_right_hand_side_that_is_not_finite_is_refused(method, bad):
    b = torch.ones(12, dtype=torch.float64)
    b[3] = bad
    with pytest.raises(ValueError, match="b holds NaN or infinite"):
        tridiagonal().solve(b, method=method)
    with pytest.raises(ValueError, match="the matrix holds NaN or infinite"):
        (tridiagonal() * bad).solve(torch.ones(12, dtype=torch.float64), method=method)


@pytest.mark.parametrize("method", ITERATIVE)
@pytest.mark.parametrize(
    ("of_A", "of_b"), [(0, 700), (0, -700), (600, 0), (-600, 0), (600, 700), (-600, -700)]
)
def test_units_do_not_matter(method, of_A, of_b):
    A = tridiagonal()
    b = torch.stack([torch.arange(1.0, 13.0), torch.ones(12)], dim=1).double()
    expected = np.linalg.solve(A.to_dense().numpy(), b.numpy())
    unit = torch.tensor([math.ldexp(1.0, of_b), 1.0], dtype=torch.float64)
    x = (A * math.ldexp(1.0, of_A)).solve(b * unit, method=method, rtol=1e-12)
    found = x * math.ldexp(1.0, of_A // 2) * math.ldexp(1.0, of_A - of_A // 2) / unit
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-9)


class Mass(MassElementAssembler):
    def forward(self, u, v):
        return u * v * torch.eye(3, dtype=u.dtype)


@pytest.mark.parametrize("n", [(8, 3, 3), (7, 4, 3)])
def test_no_zero_eigenvalue_of_a_free_body_is_missed(n):
    mesh = tm.Mesh.gen_cube(n=n)
    K, M = LinearElasticityElementAssembler.from_mesh(mesh)(), Mass.from_mesh(mesh)()
    dense = sl.eigh(K.to_dense().numpy(), M.to_dense().numpy(), eigvals_only=True)
    for k in (6, 8):
        found = K.eigsh(k, "SA", M=M)[0].numpy()
        np.testing.assert_allclose(found, dense[:k], rtol=1e-7, atol=1e-7 * dense[7])
