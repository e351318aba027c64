"""The rows of `SparseMatrix` about solving: direct, iterative, many systems, nonlinear."""

import warnings

import numpy as np
import pytest
import scipy.sparse.linalg as spl
import torch
from torch.autograd import gradcheck, gradgradcheck

import tensormesh as tm
from tensormesh.sparse import SparseMatrix
from tensormesh.sparse.iterative import PYTORCH, SCIPY
from tests.sparse.matrices import dense, regular
from tests.sparse.test_base_api_sparse import grid, symmetric

f64, c128 = torch.float64, torch.complex128

ITERATIVE = [("scipy", m) for m in SCIPY] + [("pytorch", m) for m in PYTORCH]


def expected(A, b):
    return torch.from_numpy(spl.spsolve(A.to_scipy_coo().tocsc(), b.numpy()))


def test_row_solve_direct():
    """base-api 4 | `A.solve(b)`: direct, `[N]` and `[N, k]`, shaped as b.

    features | method direct: serial.
    """
    A, b = regular(), torch.randn(12, 3, dtype=f64)
    assert torch.allclose(A.solve(b), expected(A, b))
    assert torch.allclose(A.solve(b[:, 0], "scipy", "lu"), expected(A, b[:, 0]))
    assert torch.allclose(A.solve(b, verbose=True), expected(A, b))


@pytest.mark.parametrize(("backend", "method"), ITERATIVE)
def test_row_solve_iterative(backend, method):
    """base-api 4 | `A.solve(b, backend, method, ...)`: iterative methods reach the tolerance.

    features | method cg, method bicgstab, method gmres, method lgmres, method minres: serial.
    features | method qmr, method lsqr, method lsmr: serial.
    """
    A = grid()
    b = torch.cos(torch.arange(400, dtype=f64))
    x = A.solve(b, backend=backend, method=method, tol=1e-9, maxiter=5000)
    assert float((A @ x - b).norm()) <= 2e-9 * float(b.norm())
    assert torch.allclose(x, expected(A, b), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("method", ["bicgstab", "gmres", "lgmres", "qmr"])
def test_row_solve_iterative_not_symmetric(method):
    """base-api 4 | `A.solve(b, method=...)`: matrices that are not symmetric, several columns."""
    A, b = regular(), torch.randn(12, 2, dtype=f64)
    assert torch.allclose(A.solve(b, method=method), expected(A, b), rtol=1e-7)


@pytest.mark.parametrize("method", ["cg", "bicgstab", "gmres"])
def test_row_solve_iterative_complex(method):
    """base-api 4 | `A.solve`: complex works."""
    A, b = symmetric(dtype=c128), torch.randn(12, dtype=c128)
    assert torch.allclose(A.solve(b, method=method), torch.linalg.solve(A.to_dense(), b))


@pytest.mark.parametrize(("backend", "method"), [("scipy", "cg"), ("pytorch", "cg")])
def test_row_solve_that_does_not_converge(backend, method):
    """base-api 4 | non-convergence raises `NotConvergedError`; CG on the wrong matrix too."""
    A, b = grid(), torch.ones(400, dtype=f64)
    with pytest.raises(tm.NotConvergedError, match="maxiter"):
        A.solve(b, backend=backend, method=method, maxiter=2)
    skew = SparseMatrix.from_dense(torch.tensor([[1.0, 9.0], [-9.0, 1.0]], dtype=f64))
    right = torch.tensor([1.0, 2.0], dtype=f64)
    with pytest.raises(tm.NotConvergedError, match="suits the matrix"):
        skew.solve(right, backend=backend, method=method, maxiter=50)
    with pytest.warns(RuntimeWarning, match="stopped after"):
        A.solve(b, backend=backend, method=method, maxiter=2, on_failure="warn")
    x, info = A.solve(
        b, backend=backend, method=method, maxiter=2, on_failure="return", return_info=True
    )
    assert not info.converged
    assert info.reason == "maxiter"
    assert info.residual == pytest.approx(float((A @ x - b).norm() / b.norm()))


def test_row_solve_keywords_of_the_distributed_matrix():
    """distributed-api DSparseMatrix | `solve(..., rtol, atol, maxiter, x0, ...)`: serial too."""
    A, b = grid(), torch.ones(400, dtype=f64)
    x, info = A.solve(b, method="cg", preconditioner="jacobi", rtol=1e-8, return_info=True)
    assert info.converged
    assert (info.method, info.preconditioner) == ("cg", "jacobi")
    assert 5 < info.iterations < 200
    again, info = A.solve(b, method="cg", rtol=1e-8, x0=x, return_info=True)
    assert info.iterations == 0
    assert torch.equal(again, x)
    loose = A.solve(b, method="cg", tol=1e-12, atol=1.0, maxiter=None)
    assert 0 < float((A @ loose - b).norm()) <= 1.0
    info = A.solve(b, return_info=True)[1]
    assert info.converged
    assert info.method == "lu"
    assert info.residual < 1e-12


def test_row_solve_in_single_precision():
    """base-api 4 | `A.solve`: a float32 system is solved to float32, whatever the tolerance."""
    A, b = grid().float(), torch.ones(400)
    x = A.solve(b, method="cg")
    assert x.dtype == torch.float32
    assert torch.allclose(x.double(), expected(grid(), b.double()), rtol=1e-5)


def test_row_solve_of_zero_and_nothing():
    """base-api 4 | `A.solve`: b = 0, and no unknowns, take no iteration."""
    A = grid()
    assert not A.solve(torch.zeros(400, dtype=f64), method="cg").any()
    none = SparseMatrix(torch.ones(0), torch.zeros(0).long(), torch.zeros(0).long(), (0, 0))
    assert none.solve(torch.ones(0, 2), method="cg").shape == (0, 2)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"backend": "cudss"}, "backend must be one of"),
        ({"method": "cholesky"}, "method of backend 'auto' must"),
        ({"backend": "pytorch", "method": "qmr"}, "method of backend 'pytorch' must"),
        ({"backend": "pytorch"}, "needs a method"),
        ({"preconditioner": "ilu"}, "preconditioner must"),
        ({"method": "lu", "preconditioner": "jacobi"}, "needs an iterative method"),
        ({"method": "cg", "tol": -1.0}, "tol"),
        ({"method": "cg", "tol": 0.0}, "give one positive"),
        ({"method": "cg", "maxiter": 0}, "maxiter"),
        ({"method": "cg", "on_failure": "ignore"}, "on_failure"),
        ({"method": "cg", "x0": torch.ones(3)}, "x0 has shape"),
    ],
)
def test_row_solve_refuses(options, words):
    """base-api 4 | unsupported backends, methods and values: ValueError."""
    with pytest.raises(ValueError, match=words):
        regular().solve(torch.ones(12, dtype=f64), **options)


def test_row_solve_unknown_keyword():
    """base-api 4 | `A.solve`: unknown keywords TypeError."""
    with pytest.raises(TypeError, match="is_spd"):
        regular().solve(torch.ones(12, dtype=f64), is_spd=True)


def test_jacobi_needs_a_diagonal():
    """base-api 4 | `preconditioner="jacobi"`: a zero on the diagonal is refused by its row."""
    A = SparseMatrix.from_dense(torch.tensor([[1.0, 2.0], [2.0, 0.0]], dtype=f64))
    b = torch.tensor([1.0, 3.0], dtype=f64)
    with pytest.raises(ValueError, match="row 1 has a zero"):
        A.solve(b, method="gmres", preconditioner="jacobi")
    assert torch.allclose(A.solve(b, method="gmres"), expected(A, b))


@pytest.mark.parametrize("method", ["lu", "cg", "gmres"])
@pytest.mark.parametrize("shape", [(8,), (8, 2)])
def test_row_solve_derivatives(method, shape):
    """known-faults 15 | derivatives through `solve` are those of a dense solve, to second order.

    features | method direct, method cg, method gmres: differentiable.
    """
    A = symmetric(8)
    b = torch.randn(shape, dtype=f64, requires_grad=True)
    values = A.values.clone().requires_grad_()

    def solved(v, right):
        both = A._with_values(v) + A._with_values(v).T  # perturbed, it stays symmetric for CG
        return both.solve(right, method=method, tol=1e-13)

    assert gradcheck(solved, (values, b), rtol=1e-4)
    assert gradgradcheck(solved, (values, b), rtol=1e-3, atol=1e-4)


# -- many systems, nonlinear ---------------------------------------------------------------------


def test_row_solve_batch():
    """base-api 4 | `A.solve_batch(values, b, ...)`: one pattern, other values.

    features | SparseMatrix.solve_batch: serial, differentiable.
    """
    A = regular()
    values = torch.stack([A.values, 2 * A.values, A.values**2 + 1e-3]).requires_grad_()
    b = torch.randn(3, 12, dtype=f64)
    full = torch.stack([dense(A._with_values(v)) for v in values])
    x = A.solve_batch(values, b)
    assert torch.allclose(x, torch.linalg.solve(full, b.unsqueeze(2)).squeeze(2))
    assert gradcheck(lambda v: A.solve_batch(v, b[:2]), values[:2].detach().requires_grad_())
    assert torch.allclose(A.solve_batch(A.values, b[0], method="gmres"), x[0])
    with pytest.raises(ValueError, match="shapes"):
        A.solve_batch(values, b[:2])


def cubic(u, A, f):
    return A @ u + u**3 - f


def cubic_jacobian(u, A, f):
    return A + SparseMatrix(3 * u**2, torch.arange(len(u)), torch.arange(len(u)), A.shape)


@pytest.mark.parametrize("jac_fn", [None, cubic_jacobian])
def test_row_nonlinear_solve(jac_fn):
    """base-api 4 | `A.nonlinear_solve(residual, u0, *params, jac_fn=...)`, with gradients.

    features | nonlinear_solve: serial, differentiable.
    """
    A, f = symmetric(6), torch.randn(6, dtype=f64)
    u0 = torch.zeros(6, dtype=f64)
    u = A.nonlinear_solve(cubic, u0, f, jac_fn=jac_fn)
    assert float(cubic(u, A, f).norm()) < 1e-8

    def solved(values, f):
        return A._with_values(values).nonlinear_solve(cubic, u0, f, jac_fn=jac_fn, tol=1e-14)

    values = A.values.clone().requires_grad_()
    assert gradcheck(solved, (values, f.requires_grad_()))
    # Second derivatives are not there, and say so.
    (first,) = torch.autograd.grad(solved(values, f).sum(), f, create_graph=True)
    with pytest.raises(NotImplementedError, match="first derivatives only"):
        torch.autograd.grad(first.sum(), f)


def test_row_nonlinear_solve_is_quadratic():
    """base-api 4 | `nonlinear_solve`: the root of a scalar equation, from far away."""
    one = SparseMatrix.eye(1, dtype=f64)
    root = one.nonlinear_solve(lambda u, A: A @ u - torch.cos(u), torch.tensor([3.0], dtype=f64))
    assert root.item() == pytest.approx(0.7390851332151607, abs=1e-9)


def test_row_nonlinear_solve_refuses():
    """base-api 4 | `nonlinear_solve`: no root, wrong shapes, complex numbers are errors."""
    A, u0 = SparseMatrix.eye(2, dtype=f64), torch.ones(2, dtype=f64)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(tm.NotConvergedError, match="newton"):
            A.nonlinear_solve(lambda u, A: A @ u**2 + 1.0, u0 + 0.3)
        with pytest.raises(tm.NotConvergedError, match="2 iterations"):
            A.nonlinear_solve(lambda u, A: A @ u**9, u0, max_iter=2)
    with pytest.raises(ValueError, match="shape of u0"):
        A.nonlinear_solve(lambda u, A: u.sum(), u0)
    with pytest.raises(ValueError, match="1-D"):
        A.nonlinear_solve(cubic, u0.view(2, 1), u0)
    with pytest.raises(ValueError, match="max_iter"):
        A.nonlinear_solve(cubic, u0, u0, max_iter=0)
    with pytest.raises(TypeError, match="real numbers"):
        A.nonlinear_solve(cubic, u0 + 0j, u0)


def test_row_legacy_functions_are_left_out():
    """base-api 4 | legacy functions `spsolve`, `spmm`, `nonlinear_solve`: left out for good."""
    assert not {"spsolve", "spmm", "nonlinear_solve"} & set(tm.sparse.__all__)


def test_units_do_not_matter():
    """base-api 4 | `A.solve(method="cg")`: a small right-hand side is no reason to stop early."""
    A, b = grid(), torch.ones(400, dtype=f64)
    small = A.solve(1e-14 * b, method="cg")
    assert np.allclose(1e14 * small, expected(A, b), rtol=1e-6)
