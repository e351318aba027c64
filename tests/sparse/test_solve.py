"""Direct solves against scipy and dense ones, their derivatives, and what is refused."""

import numpy as np
import pytest
import scipy.sparse.linalg as spl
import torch
from torch.autograd import gradcheck, gradgradcheck

from tensormesh.assemble import (
    LaplaceElementAssembler,
    LinearElasticityElementAssembler,
    MassElementAssembler,
)
from tensormesh.errors import SingularMatrixError
from tensormesh.mesh.generators import gen_cube, gen_rectangle
from tensormesh.mesh.mesh import Mesh
from tensormesh.operator import Condenser
from tensormesh.sparse import SparseMatrix
from tests.sparse.matrices import dense, regular

f64, c128 = torch.float64, torch.complex128


@pytest.mark.parametrize("shape", [(12,), (12, 1), (12, 3), (12, 0)])
@pytest.mark.parametrize("dtype", [torch.float32, f64, torch.complex64, c128])
def test_solutions_against_scipy(shape, dtype):
    """features | several right-hand sides, complex systems: serial."""
    A, b = regular(dtype=dtype), torch.randn(shape, dtype=dtype)
    x = A.solve(b)
    assert x.shape == b.shape
    assert x.dtype == dtype
    exact = spl.splu(A.to_scipy_coo().tocsc()).solve(b.numpy())
    assert np.allclose(x, exact, rtol=1e-4 if dtype in (torch.float32, torch.complex64) else 1e-12)


@pytest.mark.parametrize(
    ("a", "b", "out"),
    [
        (f64, c128, c128),
        (c128, f64, c128),
        (torch.float32, f64, f64),
        (f64, torch.int64, f64),
        (f64, torch.float32, f64),
    ],
)
def test_mixed_dtypes_promote(a, b, out):
    A, right = regular(dtype=a), torch.arange(12).to(b)
    x = A.solve(right)
    assert x.dtype == out
    assert torch.allclose(dense(A).to(out) @ x, right.to(out), atol=1e-5)


def test_repeated_entries_are_summed():
    A = regular()
    twice = SparseMatrix(torch.cat([A.values] * 2), A.row.repeat(2), A.col.repeat(2), A.shape)
    b = torch.ones(12, dtype=f64)
    assert torch.allclose(2 * twice.solve(b), A.solve(b))


def test_transposed_and_left_solves():
    A, b = regular(), torch.randn(12, dtype=f64)
    assert torch.allclose(A.T.solve(b), torch.linalg.solve(dense(A).T, b))


def test_nothing_to_solve():
    none = torch.zeros(0, dtype=torch.int64)
    A = SparseMatrix(torch.ones(0, dtype=f64), none, none, (0, 0))
    assert A.solve(torch.ones(0, dtype=f64)).shape == (0,)
    assert A.solve(torch.ones(0, 2, dtype=f64)).shape == (0, 2)


# -- derivatives ---------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [f64, c128])
@pytest.mark.parametrize("shape", [(4,), (4, 2)])
def test_first_and_second_derivatives(dtype, shape):
    """features | several right-hand sides: differentiable."""
    A = regular(4, dtype)
    values = A.values.clone().requires_grad_()
    b = torch.randn(shape, dtype=dtype, requires_grad=True)

    def solution(values, b):
        return A._with_values(values).solve(b)

    assert gradcheck(solution, (values, b))
    assert gradgradcheck(solution, (values, b), fast_mode=True)


def test_hessian_equals_that_of_a_dense_solve():
    """known-faults | 15: second derivatives equal those of a dense solve."""
    A = regular(4)
    b = torch.randn(4, dtype=f64)

    def sparse(values):
        return (A._with_values(values).solve(b) ** 2).sum()

    def full(values):
        return (torch.linalg.solve(A._with_values(values).to_dense(), b) ** 2).sum()

    hessian = torch.autograd.functional.hessian
    assert torch.allclose(hessian(sparse, A.values), hessian(full, A.values), rtol=1e-10)


def test_real_parts_get_real_derivatives_in_mixed_systems():
    A = regular(4)
    values = A.values.clone().requires_grad_()
    b = torch.randn(4, dtype=c128, requires_grad=True)
    assert gradcheck(lambda v, b: A._with_values(v).solve(b), (values, b))
    values = regular(4, c128).values.clone().requires_grad_()
    C = regular(4, c128)
    b = torch.randn(4, dtype=f64, requires_grad=True)
    assert gradcheck(lambda v, b: C._with_values(v).solve(b), (values, b))


def test_only_what_is_asked_for_is_differentiated():
    A, b = regular(), torch.randn(12, dtype=f64, requires_grad=True)
    A.solve(b).sum().backward()
    expected = torch.linalg.solve(dense(A).T, torch.ones(12, dtype=f64))
    assert torch.allclose(b.grad, expected)
    assert A.values.grad is None


# -- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(11,), (13,), (), (12, 2, 2)])
def test_wrong_right_hand_sides_are_refused(shape):
    with pytest.raises(ValueError, match=r"b has shape.*\[12\]"):
        regular().solve(torch.ones(shape, dtype=f64))


def test_wrong_matrices_are_refused():
    i = torch.arange(2)
    with pytest.raises(ValueError, match="square"):
        SparseMatrix(torch.ones(2), i, i, (2, 3)).solve(torch.ones(2))
    with pytest.raises(TypeError, match="floating-point"):
        SparseMatrix(torch.tensor([1, 2]), i, i, (2, 2)).solve(torch.tensor([1, 2]))
    for bad in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match="NaN or infinite"):
            SparseMatrix(torch.tensor([1.0, bad]), i, i, (2, 2)).solve(torch.ones(2))


SINGULAR = {
    "tri 10": lambda: gen_rectangle(n=(10, 10)),
    "tri 40": lambda: gen_rectangle(n=(40, 40)),
    "quad9": lambda: gen_rectangle(n=(15, 15), element_type="quad", order=2),
    "long strip": lambda: gen_rectangle(n=(200, 2), right=100.0),
    "tet": lambda: gen_cube(n=(6, 6, 6)),
    "hex": lambda: gen_cube(n=(7, 6, 5), element_type="hex"),
    "tetra10": lambda: gen_cube(n=(2, 2, 2), order=2),
    "micrometres": lambda: gen_cube(n=(4, 4, 4), right=1e-6, top=1e-6, back=1e-6),
}


@pytest.mark.parametrize("name", SINGULAR)
def test_pure_neumann_problem_is_named(name):
    """known-faults | 16: a singular system is named."""
    K = LaplaceElementAssembler.from_mesh(SINGULAR[name]())()
    b = torch.randn(K.shape[0], dtype=f64, generator=torch.Generator().manual_seed(0))
    with pytest.raises(SingularMatrixError, match="Neumann"):
        K.solve(b)


@pytest.mark.parametrize("name", ["tri 10", "quad9", "tet", "hex"])
def test_body_without_supports_is_named(name):
    mesh = SINGULAR[name]()
    K = LinearElasticityElementAssembler.from_mesh(mesh, E=2.1e11)()
    with pytest.raises(SingularMatrixError, match="supports"):
        K.solve(torch.ones(K.shape[0], dtype=f64))


def test_rigid_rotation_that_is_left_is_named():
    mesh = gen_cube(n=(3, 3, 3))
    mask = torch.zeros(3 * mesh.n_points, dtype=torch.bool)
    mask[:3] = True  # one point held: it still turns
    K, _ = Condenser(mask)(LinearElasticityElementAssembler.from_mesh(mesh)())
    with pytest.raises(SingularMatrixError):
        K.solve(torch.ones(K.shape[0], dtype=f64))


def test_points_without_cells_are_named():
    mesh = gen_rectangle(n=(2, 2))
    points = torch.cat([mesh.points, torch.zeros(2, 2, dtype=f64)])
    M = MassElementAssembler.from_mesh(Mesh.from_arrays(points, mesh.top_cells()))()
    with pytest.raises(SingularMatrixError, match=r"2 rows have no entry \(first: 9, 10\)"):
        M.solve(torch.ones(11, dtype=f64))


@pytest.mark.parametrize("values", [[1.0, 0.0], [0.0, 0.0]])
def test_rows_of_stored_zeros_are_singular(values):
    i = torch.arange(2)
    with pytest.raises(SingularMatrixError):
        SparseMatrix(torch.tensor(values), i, i, (2, 2)).solve(torch.ones(2))


def test_dependent_rows_are_singular():
    row, col = torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 0, 1])
    A = SparseMatrix(torch.tensor([1.0, 2.0, 2.0, 4.0]), row, col, (2, 2))
    with pytest.raises(SingularMatrixError):
        A.solve(torch.ones(2))


@pytest.mark.parametrize("exponent", [-20, -8, 8, 20])
def test_units_do_not_make_a_matrix_singular(exponent):
    A, b = regular(), torch.randn(12, dtype=f64)
    x = A.solve(b)
    units = torch.ones(12, dtype=f64)
    units[:6] = 10.0**exponent
    of_rows = A._with_values(A.values * units[A.row])
    assert torch.allclose(of_rows.solve(units * b), x, rtol=1e-9)
    of_columns = A._with_values(A.values * units[A.col])
    assert torch.allclose(units * of_columns.solve(b), x, rtol=1e-9)
    of_both = A._with_values(A.values * units[A.row] * units[A.col])
    assert torch.allclose(units * of_both.solve(units * b), x, rtol=1e-9)


def test_slender_and_jumping_problems_are_solved():
    # Condition numbers of 1e10 and jumps of 1e15 are hard, not singular.
    beam = gen_rectangle(n=(200, 2), right=1000.0, element_type="quad")
    mask = beam.point_data["is_left_boundary"].repeat_interleave(2)
    K, _ = Condenser(mask)(LinearElasticityElementAssembler.from_mesh(beam, E=2.1e11)())
    b = torch.randn(K.shape[0], dtype=f64, generator=torch.Generator().manual_seed(0))
    assert (K @ K.solve(b) - b).abs().max() < 1e-3 * b.abs().max()
    mesh = gen_rectangle(n=(12, 12))
    K = LaplaceElementAssembler.from_mesh(mesh)(
        func=lambda gradu, gradv, x: 10 ** (6 - 15 * (x[0] < 0.5).double()) * (gradu @ gradv)
    )
    condenser = Condenser(mesh.boundary_mask, mesh.points[:, 1])
    K_i, f_i = condenser(K)
    assert torch.allclose(condenser.recover(K_i.solve(f_i)), mesh.points[:, 1], atol=1e-10)
