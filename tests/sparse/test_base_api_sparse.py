"""The rows of `SparseMatrix`: construction, conversion, products, facts, files."""

import numpy as np
import pytest
import scipy.linalg as sl
import scipy.sparse as sp
import scipy.sparse.linalg as spl
import torch
import torch_sla
from torch.autograd import gradcheck

import tensormesh as tm
from tensormesh.sparse import SparseMatrix, SparseTensor
from tests.sparse.matrices import dense, regular

f64, c128 = torch.float64, torch.complex128

# Entries at (0, 0) twice, at (1, 0) and (1, 1): [[3, 0], [4, -5]].
REPEATED = ([1.0, 2.0, 4.0, -5.0], [0, 0, 1, 1], [0, 0, 0, 1])


def repeated(dtype=f64):
    values, row, col = REPEATED
    return SparseMatrix(torch.tensor(values, dtype=dtype), *map(torch.tensor, (row, col)), (2, 2))


def symmetric(n=12, dtype=f64):
    A = regular(n, dtype)
    full = dense(A)
    return SparseMatrix.from_dense(full + full.mH + 20 * torch.eye(n))


def grid(n=20):
    """Five-point Laplacian plus a little: n * n unknowns, positive definite."""
    line = sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(n, n))
    eye = sp.eye_array(n)
    return SparseMatrix.from_scipy_coo(
        sp.kron(line, eye) + sp.kron(eye, line) + 0.01 * sp.eye(n * n)
    )


# -- data ----------------------------------------------------------------------------------------


def test_row_exports():
    """base-api 1 | `tensormesh.sparse`: `SparseMatrix`, `SparseTensor`."""
    assert tm.sparse.SparseMatrix is tm.SparseMatrix
    assert issubclass(SparseMatrix, SparseTensor)


def test_row_data():
    """base-api 4 | data: `edata`, `values`, `row`, `col`, `edges`, `shape`, `nnz`, ..."""
    A = repeated()
    assert A.edata is A.values
    assert torch.equal(A.row_indices, A.row)
    assert torch.equal(A.col_indices, A.col)
    assert A.edges.tolist() == [REPEATED[1], REPEATED[2]]
    assert (A.shape, A.sparse_shape, A.nnz, A.ndim) == ((2, 2), (2, 2), 4, 2)
    assert (A.dtype, A.device.type, A.is_cuda, A.is_square) == (f64, "cpu", False, True)
    assert not SparseMatrix.full(2, 3).is_square
    A.values = torch.ones(4)
    assert A.edata.tolist() == [1, 1, 1, 1]


def test_row_construction_by_keywords():
    """base-api 4 | `SparseMatrix(edata, row, col, shape)`: keyword names as written."""
    i = torch.arange(2, dtype=torch.int32)
    A = SparseMatrix(edata=torch.ones(2), row=i, col=i, shape=(2, 2))
    assert A.row.dtype == torch.int64
    assert torch.equal(A.to_dense(), torch.eye(2))


def test_row_gradients_of_values():
    """base-api 4 | `requires_grad`, `grad`: a matrix or None."""
    A = repeated()
    assert not A.requires_grad
    assert A.grad is None
    A.values.requires_grad_()
    assert A.requires_grad
    (A @ torch.tensor([2.0, 3.0], dtype=f64)).sum().backward()
    assert type(A.grad) is SparseMatrix
    assert A.grad.values.tolist() == [2, 2, 2, 3]  # d(A x)_i / dA_ij = x_j


# -- construction --------------------------------------------------------------------------------


def test_row_from_block_coo():
    """base-api 4 | `from_block_coo(blocks, row, col, (R, C))`: against scipy's block rows."""
    blocks = torch.randn(3, 2, 2, dtype=f64, requires_grad=True)
    row, col = torch.tensor([0, 1, 1]), torch.tensor([2, 0, 1])
    A = SparseMatrix.from_block_coo(blocks, row, col, (2, 3))
    expected = sp.bsr_array((blocks.detach().numpy(), col.numpy(), [0, 1, 3]), shape=(4, 6))
    assert torch.equal(A.to_dense(), torch.from_numpy(expected.toarray()))
    assert torch.equal(A.edata, blocks.flatten())  # block by block, row-major inside
    assert A.requires_grad
    with pytest.raises(ValueError, match=r"\[k, h, h\]"):
        SparseMatrix.from_block_coo(torch.ones(3, 2, 1), row, col, (2, 3))


def test_row_expand_block_indices():
    """base-api 4 | `expand_block_indices(row, col, h)`: unknown `node * h + component`."""
    row, col = SparseMatrix.expand_block_indices(torch.tensor([1]), torch.tensor([3]), 2)
    assert row.tolist() == [2, 2, 3, 3]
    assert col.tolist() == [6, 7, 6, 7]
    with pytest.raises(ValueError, match="h must be"):
        SparseMatrix.expand_block_indices(row, col, 0)


def test_row_from_other_forms():
    """base-api 4 | `from_dense`, `from_sparse_coo`, `from_torch_sparse`, differentiable."""
    full = torch.tensor([[0.0, 2.0, 0.0], [-1.0, 0.0, 3.0]], dtype=f64, requires_grad=True)
    for A in (
        SparseMatrix.from_dense(full),
        SparseMatrix.from_sparse_coo(full.to_sparse()),
        SparseMatrix.from_torch_sparse(full.to_sparse_csr()),
    ):
        assert type(A) is SparseMatrix
        assert (A.nnz, A.shape) == (3, (2, 3))
        assert torch.equal(A.to_dense(), full)
        (grad,) = torch.autograd.grad((A.values**2).sum(), full, retain_graph=True)
        assert torch.equal(grad, 2 * full)
    with pytest.raises(ValueError, match="2-D"):
        SparseMatrix.from_dense(torch.ones(3))


def test_row_from_sparse_coo_coalesces():
    """base-api 4 | `from_sparse_coo` (coalesces)."""
    A = SparseMatrix.from_sparse_coo(repeated().to_sparse_coo())
    assert A.nnz == 3
    assert A.to_dense().tolist() == [[3, 0], [4, -5]]


@pytest.mark.parametrize("kind", [sp.coo_array, sp.csr_matrix, sp.csc_array])
def test_row_from_scipy_coo(kind):
    """base-api 4 | `from_scipy_coo(coo, device, dtype)`: a copy; digits are kept by default."""
    given = kind(sp.random(5, 4, 0.4, rng=np.random.default_rng(0)))
    A = SparseMatrix.from_scipy_coo(given)
    assert A.dtype == f64
    assert np.array_equal(A.to_scipy_coo().toarray(), given.toarray())
    assert SparseMatrix.from_scipy_coo(given, "cpu", torch.float32).dtype == torch.float32
    A.values.zero_()
    assert given.data.all()


def test_row_eye_and_full():
    """base-api 4 | `eye(n, value, device, dtype)`, `full(m, n, value, ...)`: float32 by default."""
    eye, full = SparseMatrix.eye(3, 2.0), SparseMatrix.full(2, 3, value=-1.5, dtype=f64)
    assert eye.dtype == torch.float32
    assert torch.equal(eye.to_dense(), 2 * torch.eye(3))
    assert full.nnz == 6
    assert torch.equal(full.to_dense(), torch.full((2, 3), -1.5, dtype=f64))


def test_row_random():
    """base-api 4 | `random(m, n, density, ...)`, `random_layout`, `random_from_layout`."""
    A = SparseMatrix.random(20, 30, density=0.1)
    assert (A.shape, A.nnz, A.dtype) == ((20, 30), 60, torch.float32)
    assert A.coalesce().nnz == 60  # no position twice
    assert 0 <= float(A.values.min()) < float(A.values.max()) <= 1
    layout = SparseMatrix.random_layout(4, 5, 0.5)
    B, C = (SparseMatrix.random_from_layout(*layout, dtype=f64) for _ in range(2))
    assert B.has_same_layout(C)
    assert not torch.equal(B.values, C.values)
    assert SparseMatrix.random(3, 0).nnz == 0
    large = SparseMatrix.random(10**6, 10**6, density=1e-9)  # its dense form has 10^12 entries
    assert large.coalesce().nnz == 1000
    with pytest.raises(ValueError, match="density"):
        SparseMatrix.random_layout(3, 3, 1.5)


def test_row_combine_stacks():
    """base-api 4 | `combine([A, B])` stacks rows; `combine_vector(list, axis)`."""
    A, B = SparseMatrix.random(2, 3, 0.5, dtype=f64), SparseMatrix.random(4, 3, 0.5, dtype=f64)
    expected = torch.vstack([A.to_dense(), B.to_dense()])
    assert torch.equal(SparseMatrix.combine([A, B]).to_dense(), expected)
    assert torch.equal(SparseMatrix.combine_vector([A, B]).to_dense(), expected)
    beside = SparseMatrix.combine_vector([A.T, B.T], axis=1)
    assert torch.equal(beside.to_dense(), expected.T)
    with pytest.raises(ValueError, match="sizes"):
        SparseMatrix.combine([A, B.T])
    with pytest.raises(ValueError, match="axis"):
        SparseMatrix.combine_vector([A], axis=2)


def test_row_combine_blocks():
    """base-api 4 | `combine([[A, None], [1.0, B]])`: None is zero, a number fills its block.

    features | blocks of matrices: serial.
    """
    A, B = repeated(), SparseMatrix.eye(3, dtype=f64)
    A.values.requires_grad_()
    M = SparseMatrix.combine([[A, None], [1.0, B]])
    expected = sp.block_array(
        [[A.to_scipy_coo(), None], [np.ones((3, 2)), B.to_scipy_coo()]]
    ).toarray()
    assert type(M) is SparseMatrix
    assert np.array_equal(M.to_dense().detach().numpy(), expected)
    assert M.nnz == 4 + 6 + 3  # the block of zeros stores nothing
    M.to_dense().sum().backward()
    assert torch.equal(A.values.grad, torch.ones(4, dtype=f64))
    assert torch.equal(SparseMatrix.combine_matrix([[A]]).to_dense(), A.to_dense())
    assert SparseMatrix.combine([[A, 1j], [None, A]]).dtype == c128


@pytest.mark.parametrize(
    ("parts", "error", "words"),
    [
        ([], ValueError, "grid"),
        ([[None, 1.0]], ValueError, "no matrix"),
        ([[repeated()], [repeated(), None]], ValueError, "grid"),
        ([torch.ones(2, 2)], TypeError, "SparseMatrix"),
    ],
)
def test_row_combine_refuses(parts, error, words):
    """base-api 4 | `combine`: what is no grid of blocks is an error that says so."""
    with pytest.raises(error, match=words):
        SparseMatrix.combine(parts)


# -- conversion ----------------------------------------------------------------------------------


def test_row_conversions():
    """base-api 4 | `to_dense`, `to_scipy_coo`, `to_sparse_coo`, `to_torch_sparse`, `to_csr`."""
    A = repeated()
    full = torch.tensor([[3.0, 0.0], [4.0, -5.0]], dtype=f64)
    assert torch.equal(A.to_dense(), full)
    assert np.array_equal(A.to_scipy_coo().toarray(), full)
    assert not A.to_sparse_coo().is_coalesced()
    assert torch.equal(A.to_torch_sparse().to_dense(), full)
    csr = A.to_csr()
    assert csr.layout == torch.sparse_csr
    assert csr.values().tolist() == [3, 4, -5]
    assert torch.equal(csr.to_dense(), full)


def test_row_moves_keep_the_class():
    """base-api 4 | `to` in either order, `cpu/float/double/half/detach/clone`."""
    A = repeated()
    for B, dtype in (
        (A.to("cpu", torch.float32), torch.float32),
        (A.to(torch.float32, "cpu"), torch.float32),
        (A.to(dtype=torch.float32), torch.float32),
        (A.cpu(), f64),
        (A.float(), torch.float32),
        (A.double(), f64),
        (A.half(), torch.float16),
        (A.detach(), f64),
        (A.clone(), f64),
    ):
        assert type(B) is SparseMatrix
        assert B.dtype == dtype
        assert B.layout_signature == A.layout_signature
        assert B.values.double().tolist() == REPEATED[0]


# -- products and entries ------------------------------------------------------------------------


def test_row_products():
    """base-api 4 | products: `A @ x`, `x @ A`, `A @ B`; wrong lengths are errors."""
    A, x = regular(), torch.randn(12, dtype=f64)
    full = dense(A)
    assert torch.allclose(A @ x, full @ x)
    assert torch.allclose(x @ A, x @ full)
    assert torch.allclose(A @ torch.eye(12, dtype=f64), full)
    product = A @ A.T
    assert type(product) is SparseMatrix
    assert torch.allclose(product.to_dense(), full @ full.T)
    assert (A.float() @ x).dtype == f64
    for wrong in (x[:-1], torch.cat([x, x])):
        with pytest.raises(ValueError, match="multiplies"):
            A @ wrong


def test_row_entrywise():
    """base-api 4 | entrywise: `+ - * /`, numbers, `[nnz]` tensors, `-A`, `A ** p`, `abs`."""
    A = repeated()
    B, w = 2 * A, torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=f64)
    v = A.values
    for found, expected in (
        (A + B, 3 * v),
        (A - B, -v),
        (A * B, 2 * v * v),
        (A / B, 0.5 + 0 * v),
        (A + 1, v + 1),
        (A * w, v * w),
        (-A, -v),
        (A**2, v**2),
        (abs(A), v.abs()),
        (1 - A, 1 - v),
    ):
        assert type(found) is SparseMatrix
        assert torch.equal(found.values, expected)
        assert found.row is A.row
    with pytest.raises(ValueError, match="different entries"):
        A * SparseMatrix.eye(2, dtype=f64)


def test_row_sum_with_identity():
    """known-faults 17 | `K + I` of other entries is their sum."""
    A = repeated()
    assert torch.equal((A + SparseMatrix.eye(2, dtype=f64)).to_dense(), A.to_dense() + torch.eye(2))


def test_row_index_out_of_range():
    """known-faults 17 | an index out of range is an error at construction."""
    with pytest.raises(ValueError, match="outside 0"):
        SparseMatrix(torch.ones(1), torch.tensor([0]), torch.tensor([3]), (2, 3))


# -- facts ---------------------------------------------------------------------------------------


def test_row_transpose():
    """base-api 4 | `T`, `transpose()` share values.

    features | transposes: serial.
    """
    A = regular()
    for B in (A.T, A.transpose()):
        assert torch.equal(B.to_dense(), A.to_dense().T)
        assert B.values.data_ptr() == A.values.data_ptr()


def test_row_degree_and_mask():
    """base-api 4 | `degree(axis)` counts entries, `layout_mask` is dense 0/1."""
    A = SparseMatrix(torch.zeros(3), torch.tensor([0, 0, 2]), torch.tensor([1, 3, 1]), (3, 4))
    assert A.degree().tolist() == [2, 0, 1]
    assert A.degree(1).tolist() == [0, 2, 0, 1]
    assert A.layout_mask.tolist() == [[0, 1, 0, 1], [0, 0, 0, 0], [0, 1, 0, 0]]
    with pytest.raises(ValueError, match="axis"):
        A.degree(2)


def test_row_sum():
    """base-api 4 | `sum(axis)`: of all, of columns, of rows."""
    A = regular()
    full = dense(A)
    assert torch.allclose(A.sum(), full.sum())
    for axis in (0, 1, -1):
        assert torch.allclose(A.sum(axis), full.sum(axis))
    assert SparseMatrix.full(2, 3).sum(axis=0).tolist() == [2, 2, 2]


def test_row_norm_and_max():
    """base-api 4 | `norm()`, `max()`: of the matrix, repeated entries summed, holes zero.

    features | reductions: serial.
    """
    A = repeated()
    assert A.norm().item() == pytest.approx(50**0.5)
    assert A.max().item() == 4
    assert (-abs(regular())).max().item() == 0
    assert SparseMatrix.full(2, 2, -3.0).max().item() == -3
    with pytest.raises(TypeError, match="order"):
        A.to(dtype=c128).max()


def test_engine_reductions_work_on_our_matrices():
    """engine-traps | torch-sla's `mean`, `eigs`, `norm(ord)`, `condition_number`: right values."""
    A, K = repeated(), grid(10)
    full = A.to_dense()
    assert torch.equal(A.sum(1, keepdim=True), full.sum(1, keepdim=True))
    assert torch.equal(A.max(axis=0), full.amax(0))
    assert A.norm(1).item() == 7
    assert A.norm(2).item() == pytest.approx(float(torch.linalg.matrix_norm(full, 2)))
    assert K.mean(axis=0).shape == (100,)
    every = torch.linalg.eigvalsh(K.to_dense())
    assert torch.allclose(K.eigs(3)[0], every[-3:])
    assert K.condition_number().item() == pytest.approx(float(every[-1] / every[0]))
    assert A.condition_number().item() == pytest.approx(float(torch.linalg.cond(full)))
    nearest = every[(every - 2.5).abs().argsort()[:3]].sort().values
    assert torch.allclose(K.eigsh(3, sigma=2.5)[0], nearest)
    assert K.eigsh(3, return_eigenvectors=False)[1] is None
    with pytest.raises(ValueError, match="axis"):
        A.sum(2)


def test_symmetry_to_a_tolerance():
    """base-api 4 | `is_symmetric(atol, rtol)`: exact to rounding unless told otherwise."""
    K = grid(6)
    off = SparseMatrix.from_dense(K.to_dense() + 1e-6 * torch.triu(torch.ones(36, 36), 1))
    assert not bool(off.is_symmetric())
    assert bool(off.is_symmetric(rtol=1e-5))
    assert bool(off.is_symmetric(atol=1e-5))


def test_torch_sla_solve_takes_our_matrices():
    """engine-traps | `torch_sla.solve(A, b)`: our answer and gradient.

    features | SparseTensor: serial.
    """
    A, b = grid(8), torch.ones(64, dtype=f64)
    expected = torch.linalg.solve(A.to_dense(), b)
    for options in ({}, {"method": "cg", "rtol": 1e-12}):
        assert torch.allclose(torch_sla.solve(A, b, **options), expected)
    A.values.requires_grad_()
    torch_sla.solve(A, b).sum().backward()
    # K is symmetric: the adjoint of a sum over a right-hand side of ones is the solution itself.
    assert torch.allclose(A.values.grad, -expected[A.row] * expected[A.col])


def test_row_det():
    """base-api 4 | `det()`, with derivatives to second order."""
    A = regular(6)
    assert torch.allclose(A.det(), torch.linalg.det(dense(A)))
    assert repeated().det().item() == pytest.approx(-15)
    values = A.values.clone().requires_grad_()
    assert gradcheck(lambda v: A._with_values(v).det(), values)
    with pytest.raises(ValueError, match="square"):
        SparseMatrix.full(2, 3).det()


@pytest.mark.parametrize("which", ["LM", "SM", "LA", "SA"])
@pytest.mark.parametrize("n", [10, 20])
def test_row_eigsh(which, n):
    """base-api 4 | `eigsh(k, which)`: against dense eigenvalues, dense and iterative.

    features | eigsh: serial.
    """
    A = grid(n) - 3.3 * SparseMatrix.eye(n * n, dtype=f64)  # indefinite
    every = torch.linalg.eigvalsh(A.to_dense())
    by_size = every[every.abs().argsort()]
    expected = {"LA": every[-4:], "SA": every[:4], "LM": by_size[-4:], "SM": by_size[:4]}[which]
    w, v = A.eigsh(k=4, which=which)
    assert torch.allclose(w, expected.sort().values, atol=1e-9)
    assert torch.allclose(A @ v, v * w, atol=1e-8)
    assert torch.allclose(v.T @ v, torch.eye(4, dtype=f64), atol=1e-8)


def test_row_eigsh_gradient_and_refusals():
    """base-api 4 | `eigsh`: derivatives of the values; not symmetric or out of range is refused.

    features | eigsh: differentiable.
    """
    A = symmetric(7)
    symmetrise = lambda v: A._with_values(v) * 0.5 + A._with_values(v).T.coalesce() * 0.5  # noqa: E731
    assert gradcheck(lambda v: symmetrise(v).eigsh(2)[0], A.values.clone().requires_grad_())
    values = A.values.clone().requires_grad_()
    w, v = symmetrise(values).eigsh(2)
    assert not v.requires_grad
    (first,) = torch.autograd.grad(w.sum(), values, create_graph=True)
    with pytest.raises(NotImplementedError, match="first derivatives only"):
        first.sum().backward()
    with pytest.raises(ValueError, match="symmetric"):
        regular().eigsh()
    with pytest.raises(ValueError, match="which"):
        A.eigsh(which="BE")
    with pytest.raises(ValueError, match="k must"):
        A.eigsh(k=8)


def test_row_symmetry():
    """base-api 4 | `is_symmetric()`, `is_positive_definite()`: 0-d bool tensors."""
    K, H = grid(8), symmetric(dtype=c128)
    for A, is_symmetric, is_positive in (
        (K, True, True),
        (K - 4.0 * SparseMatrix.eye(64, dtype=f64), True, False),
        (regular(), False, False),
        (repeated(), False, False),
        (H, False, True),
        (SparseMatrix.full(2, 3), False, False),
        (SparseMatrix.full(2, 2), True, False),
    ):
        assert A.is_symmetric().dtype == torch.bool
        assert A.is_symmetric().dim() == 0
        assert bool(A.is_symmetric()) is is_symmetric
        assert bool(A.is_positive_definite()) is is_positive
    assert bool(H.is_hermitian())


def test_row_positive_definite_of_a_floating_body():
    """base-api 4 | `is_positive_definite()`: a stiffness without conditions is not."""
    mesh = tm.Mesh.gen_rectangle(n=(9, 7))
    K = tm.LaplaceElementAssembler.from_mesh(mesh)()
    M = tm.MassElementAssembler.from_mesh(mesh)()
    assert not bool(K.is_positive_definite())
    assert bool((K + 1e-6 * M).is_positive_definite())


# -- layout and files ----------------------------------------------------------------------------


def test_row_layout():
    """base-api 4 | `layout_signature`, `has_same_layout`: by content; `layout_hash`."""
    A = repeated()
    B = SparseMatrix(A.values * 2, A.row.clone(), A.col.clone(), A.shape)
    assert hash(A.layout_signature) == hash(B.layout_signature)
    assert A.has_same_layout(B)
    assert A.has_same_layout(B.layout_signature)
    assert not A.has_same_layout(A.T)
    with pytest.warns(DeprecationWarning, match="layout_signature"):
        assert A.layout_hash == A.layout_signature


@pytest.mark.parametrize("name", ["matrix.safetensors", "matrix.bin"])
def test_row_save_and_load(tmp_path, name):
    """base-api 4 | `save(path, metadata)`, `load(path, device)`: the class comes back.

    features | SparseMatrix.save: serial.
    """
    pytest.importorskip("safetensors")
    A = regular()
    A.save(tmp_path / name, metadata={"what": "a test"})
    B = SparseMatrix.load(tmp_path / name, device="cpu")
    assert type(B) is SparseMatrix
    assert B.has_same_layout(A)
    assert torch.equal(B.values, A.values)
    assert (B.shape, B.dtype) == (A.shape, A.dtype)


def test_row_left_out():
    """base-api 4 | no indexing, `len` or `to_sparse_csr`."""
    A = repeated()
    with pytest.raises(TypeError):
        len(A)
    with pytest.raises(TypeError):
        A[0]
    assert not hasattr(A, "to_sparse_csr")


def test_scipy_agrees_about_facts():
    """base-api 4 | `norm`, `max`, `sum`: as scipy's."""
    A = SparseMatrix.random(15, 11, 0.2, dtype=f64)
    S = A.to_scipy_coo()
    assert A.norm().item() == pytest.approx(spl.norm(S))
    assert A.max().item() == S.max()
    assert np.allclose(A.sum(0), S.sum(axis=0))


def test_row_eigsh_with_a_mass():
    """base-api 4 | `eigsh(k, which, M=M)`: against scipy, dense and iterative, and gradients."""
    for n in (8, 20):
        mesh = tm.Mesh.gen_rectangle(n=(n, n))
        condenser = tm.Condenser(mesh.boundary_mask)
        K, M = (
            condenser(form.from_mesh(mesh)())[0]
            for form in (tm.LaplaceElementAssembler, tm.MassElementAssembler)
        )
        w, v = K.eigsh(3, "SA", M=M)
        exact = sl.eigh(K.to_dense().numpy(), M.to_dense().numpy())[0][:3]
        assert torch.allclose(w, torch.from_numpy(exact), rtol=1e-9)
        assert torch.allclose(v.T @ (M @ v), torch.eye(3, dtype=v.dtype), atol=1e-9)
    mesh = tm.Mesh.gen_rectangle(n=(2, 3))
    K = tm.LaplaceElementAssembler.from_mesh(mesh)()
    M = tm.MassElementAssembler.from_mesh(mesh)()

    def both(k, m):
        k, m = K._with_values(k), M._with_values(m)
        return (k + k.T).eigsh(2, "LA", M=m + m.T)[0]

    values = [A.values.clone().requires_grad_() for A in (K, M)]
    assert gradcheck(both, values)
    with pytest.raises(ValueError, match="M has shape"):
        K.eigsh(2, M=SparseMatrix.eye(2, dtype=torch.float64))
    with pytest.raises(TypeError, match="M must be a SparseMatrix"):
        K.eigsh(2, M=3)
