"""Dirichlet conditions by elimination, against block elimination with numpy."""

import copy
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd import gradcheck, gradgradcheck

from tensormesh.assemble import (
    LaplaceElementAssembler,
    LinearElasticityElementAssembler,
    MassElementAssembler,
)
from tensormesh.mesh.generators import gen_rectangle
from tensormesh.mesh.mesh import Mesh
from tensormesh.operator import Condenser, condenser
from tensormesh.sparse import SparseMatrix
from tests.sparse.matrices import dense, regular

f64, c128 = torch.float64, torch.complex128
N = 12


@pytest.fixture
def K():
    """Not symmetric, so that rows and columns cannot be exchanged unnoticed."""
    return regular(N)


@pytest.fixture
def mask():
    return torch.arange(N) % 3 == 0


def eliminated(K, mask, g, f):
    """Block elimination, dense: K_ii, f_i and the full solution."""
    A, f, g = dense(K).numpy(), np.asarray(f), np.asarray(g)
    o = mask.numpy()
    K_ii, K_io = A[np.ix_(~o, ~o)], A[np.ix_(~o, o)]
    f_i = f[~o] - K_io @ g[o]
    u = np.zeros(f.shape, np.result_type(A, f, g))
    u[o], u[~o] = g[o], np.linalg.solve(K_ii, f_i)
    return K_ii, f_i, u


# -- against block elimination -------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(flags=st.lists(st.booleans(), min_size=N, max_size=N), seed=st.integers(0, 1000))
def test_any_mask(flags, seed):
    """features | Condenser: serial."""
    K, mask = regular(N), torch.tensor(flags)
    torch.manual_seed(seed)
    f, g = torch.randn(N, dtype=f64), torch.randn(N, dtype=f64)
    cond = Condenser(mask, g)
    K_i, f_i = cond(K, f)
    K_ii, right, u = eliminated(K, mask, g, f)
    assert type(K_i) is SparseMatrix
    assert np.allclose(K_i.to_dense(), K_ii)
    assert np.allclose(f_i, right)
    assert np.allclose(cond.recover(K_i.solve(f_i)), u)


@pytest.mark.parametrize("form", ["full length", "per constrained unknown"])
def test_forms_of_the_values(K, mask, form):
    g, f = torch.randn(N, dtype=f64), torch.randn(N, dtype=f64)
    cond = Condenser(mask, g if form == "full length" else g[mask])
    K_i, f_i = cond(K, f)
    _, right, u = eliminated(K, mask, g, f)
    assert np.allclose(f_i, right)
    assert np.allclose(cond.recover(K_i.solve(f_i)), u)


def test_only_constrained_entries_of_a_full_value_are_read(K, mask):
    g = torch.randn(N, dtype=f64)
    rubbish = torch.where(mask, g, torch.nan)
    cond, other = Condenser(mask, g), Condenser(mask, rubbish)
    (K_i, f_i), (_, other_f) = cond(K), other(K)
    assert torch.equal(f_i, other_f)
    u = K_i.solve(f_i)
    assert torch.equal(cond.recover(u), other.recover(u))


def test_no_values_mean_zeros(K, mask):
    f = torch.randn(N, dtype=f64)
    for cond in (Condenser(mask), Condenser(mask, torch.zeros(N, dtype=f64))):
        K_i, f_i = cond(K, f)
        assert torch.equal(f_i, f[~mask])
        assert not cond.recover(K_i.solve(f_i))[mask].any()


def test_no_right_hand_side_means_zeros(K, mask):
    g = torch.randn(N, dtype=f64)
    for cond in (Condenser(mask, g), Condenser(mask)):
        assert torch.equal(cond(K)[1], cond(K, torch.zeros(N, dtype=f64))[1])
    assert Condenser(mask)(K.float())[1].dtype == torch.float32


@pytest.mark.parametrize("trailing", [(3,), (1,), (0,), (2, 3)])
def test_several_right_hand_sides(K, mask, trailing):
    f, g = torch.randn(N, *trailing, dtype=f64), torch.randn(N, dtype=f64)
    cond = Condenser(mask, g)
    K_i, f_i = cond(K, f)
    assert f_i.shape == (int((~mask).sum()), *trailing)
    columns = f.reshape(N, -1)
    for j in range(columns.shape[1]):
        assert torch.allclose(f_i.reshape(len(f_i), -1)[:, j], cond(K, columns[:, j])[1])
    u = cond.recover(f_i)
    assert u.shape == f.shape
    assert torch.equal(u[~mask], f_i)
    expected = g[mask].reshape(-1, *(1,) * len(trailing)).expand(-1, *trailing)
    assert torch.equal(u[mask], expected)
    if f.dim() == 2 and f.shape[1]:
        assert np.allclose(
            cond.recover(K_i.solve(f_i)), eliminated(K, mask, g[:, None].expand_as(f), f)[2]
        )


def test_everything_constrained(K):
    g = torch.randn(N, dtype=f64)
    cond = Condenser(torch.ones(N, dtype=torch.bool), g)
    K_i, f_i = cond(K, torch.randn(N, dtype=f64))
    assert K_i.shape == (0, 0)
    assert f_i.shape == (0,)
    assert torch.equal(cond.recover(K_i.solve(f_i)), g)


def test_nothing_constrained(K):
    f = torch.randn(N, dtype=f64)
    cond = Condenser(torch.zeros(N, dtype=torch.bool), torch.randn(N, dtype=f64))
    K_i, f_i = cond(K, f)
    assert torch.equal(K_i.to_dense(), K.to_dense())
    assert torch.equal(f_i, f)
    assert torch.equal(cond.recover(f_i), f)


def test_symmetry_is_kept():
    mesh = gen_rectangle(n=(4, 3))
    K = LaplaceElementAssembler.from_mesh(mesh)()
    K_i, _ = Condenser(mesh.boundary_mask)(K)
    assert torch.equal(K_i.to_dense(), K_i.to_dense().T)
    assert K_i.shape == (6, 6)


def test_vector_problem_with_one_component_held():
    # A bar pulled along x, free to contract: u = (x, -nu / (1 - nu) y) in plane strain.
    nu = 0.25
    mesh = gen_rectangle(n=(3, 2), element_type="quad")
    K = LinearElasticityElementAssembler.from_mesh(mesh, E=1.0, nu=nu)()
    x, y = mesh.points.T
    mask = torch.stack([(x == 0) | (x == 1), y == 0], 1).flatten()
    g = torch.stack([x, torch.zeros_like(x)], 1).flatten()
    cond = Condenser(mask, g)
    K_i, f_i = cond(K)
    u = cond.recover(K_i.solve(f_i)).view(-1, 2)
    assert torch.allclose(u, torch.stack([x, -nu / (1 - nu) * y], 1), atol=1e-12)


def test_points_without_cells_are_left_out():
    mesh = gen_rectangle(n=(3, 3))
    extra = torch.tensor([[9.0, 9.0], [8.0, 8.0]], dtype=f64)
    with_orphans = Mesh.from_arrays(
        torch.cat([extra, mesh.points]), {"triangle": mesh.cells["triangle"] + 2}
    )
    K = LaplaceElementAssembler.from_mesh(with_orphans)()
    mask = torch.cat([torch.tensor([True, False]), mesh.boundary_mask])
    g = torch.cat([torch.tensor([5.0, 6.0], dtype=f64), mesh.points[:, 0]])
    cond = Condenser(mask, g)
    f = torch.ones(len(mask), dtype=f64)
    K_i, f_i = cond(K, f)
    assert K_i.shape == (4, 4)
    plain = Condenser(mesh.boundary_mask, mesh.points[:, 0])
    K_p, f_p = plain(LaplaceElementAssembler.from_mesh(mesh)(), f[2:])
    assert torch.equal(K_i.to_dense(), K_p.to_dense())
    u = cond.recover(K_i.solve(f_i))
    assert u[:2].tolist() == [5.0, 0.0]
    assert torch.equal(u[2:], plain.recover(K_p.solve(f_p)))


# -- dtypes --------------------------------------------------------------------------------------


def test_complex_right_hand_side_stays_complex(K, mask):
    """known-faults | 14: a complex right-hand side stays complex."""
    f, g = torch.randn(N, dtype=c128), torch.randn(N, dtype=f64)
    for cond, value in ((Condenser(mask, g), g), (Condenser(mask), torch.zeros(N, dtype=f64))):
        K_i, f_i = cond(K, f)
        assert f_i.dtype == c128
        assert not K_i.dtype.is_complex
        assert np.allclose(cond.recover(K_i.solve(f_i)), eliminated(K, mask, value, f)[2])


def test_complex_values_and_complex_matrix(K, mask):
    f, g = torch.randn(N, dtype=f64), torch.randn(N, dtype=c128)
    cond = Condenser(mask, g)
    for matrix in (K, K * (1 + 0.5j)):
        K_i, f_i = cond(matrix, f)
        assert f_i.dtype == c128
        assert np.allclose(cond.recover(K_i.solve(f_i)), eliminated(matrix, mask, g, f)[2])


def test_integer_data_keep_their_values_and_spoil_nothing(K, mask):
    """known-faults | 14: integer data keep their values."""
    g = torch.linspace(0, 1, N, dtype=f64)
    cond = Condenser(mask, g)
    integers = torch.arange(N)
    _, f_i = cond(K, integers)
    assert f_i.dtype == f64
    assert np.allclose(f_i, eliminated(K, mask, g, integers)[1])
    assert torch.equal(cond.dirichlet_value, g)
    _, f_i = cond(K, torch.zeros(N, dtype=f64))  # later calls see the full values
    assert np.allclose(f_i, eliminated(K, mask, g, torch.zeros(N))[1])
    ints = Condenser(mask, torch.arange(N))
    assert np.allclose(ints(K)[1], eliminated(K, mask, np.arange(N), np.zeros(N))[1])
    u = ints.recover(torch.full((int((~mask).sum()),), 0.5, dtype=f64))
    assert torch.equal(u, torch.where(mask, torch.arange(N).double(), 0.5))


@pytest.mark.parametrize("dtype", [torch.float32, f64])
def test_single_precision_data_are_promoted(K, mask, dtype):
    cond = Condenser(mask, torch.ones(N))
    _, f_i = cond(K.to(dtype), torch.ones(N))
    assert f_i.dtype == dtype


# -- once per layout -----------------------------------------------------------------------------


def test_symbolic_part_is_done_once_per_layout(mask, monkeypatch):
    made = []
    original = condenser.Elimination
    monkeypatch.setattr(condenser, "Elimination", lambda *a: (made.append(1), original(*a))[1])
    cond = Condenser(mask)
    for seed in range(3):  # same positions, other values and other index tensors
        A = regular(N)
        torch.manual_seed(seed)
        A = SparseMatrix(torch.randn(A.nnz, dtype=f64), A.row.clone(), A.col.clone(), A.shape)
        K_i, _ = cond(A)
        assert np.allclose(K_i.to_dense(), dense(A)[~mask][:, ~mask])
    assert len(made) == 1
    a, b = cond(A)[0], cond(2 * A)[0]
    assert a.pattern is b.pattern
    cond.update_dirichlet(torch.ones(N))
    cond(A)
    assert len(made) == 1


def test_another_layout_is_followed(mask):
    cond = Condenser(mask, torch.ones(N, dtype=f64))
    for K in (regular(N), regular(N, seed=1), regular(N).T, regular(N)):
        K_i, f_i = cond(K)
        K_ii, right, _ = eliminated(K, mask, np.ones(N), np.zeros(N))
        assert np.allclose(K_i.to_dense(), K_ii)
        assert np.allclose(f_i, right)


def test_matrices_of_one_mesh_are_condensed_alike():
    mesh = gen_rectangle(n=(3, 3))
    cond = Condenser(mesh.boundary_mask)
    K, _ = cond(LaplaceElementAssembler.from_mesh(mesh)())
    M, _ = cond(MassElementAssembler.from_mesh(mesh)())
    assert K.has_same_layout(M)
    assert torch.allclose((K + 2 * M).to_dense(), K.to_dense() + 2 * M.to_dense())


def test_a_mask_that_is_written_to_is_followed(K, mask):
    cond = Condenser(mask.clone())
    cond(K)
    cond.dirichlet_mask[1] = True
    mask[1] = True
    assert np.allclose(cond(K)[0].to_dense(), dense(K)[~mask][:, ~mask])


def test_update_dirichlet(K, mask):
    cond = Condenser(mask, torch.ones(N, dtype=f64))
    cond(K)
    g = torch.randn(N, dtype=f64)
    for value in (g, g[mask]):
        cond.update_dirichlet(value)
        assert np.allclose(cond(K)[1], eliminated(K, mask, g, np.zeros(N))[1])
    cond.update_dirichlet(None)
    assert not cond(K)[1].any()
    with pytest.raises(ValueError, match="dirichlet_value has shape"):
        cond.update_dirichlet(torch.ones(3))
    assert not cond(K)[1].any()  # a refused value changes nothing


# -- moving vectors ------------------------------------------------------------------------------


@pytest.mark.parametrize("trailing", [(), (2,), (2, 3)])
def test_restrict_and_prolong(K, mask, trailing):
    cond = Condenser(mask, torch.ones(N, dtype=f64))
    cond(K)
    f = torch.randn(N, *trailing, dtype=f64)
    f_i = cond.restrict(f)
    assert torch.equal(f_i, f[~mask])
    back = cond.prolong(f_i)
    assert torch.equal(back[~mask], f[~mask])
    assert not back[mask].any()
    assert torch.equal(cond.restrict(back), f_i)


def test_restriction_is_adjoint_to_prolongation(K, mask):
    cond = Condenser(mask)
    cond(K)
    f, u = torch.randn(N, dtype=f64), torch.randn(int((~mask).sum()), dtype=f64)
    assert float(cond.restrict(f) @ u) == pytest.approx(float(f @ cond.prolong(u)))


def test_nothing_is_written_to(K, mask):
    f, g = torch.randn(N, dtype=f64), torch.randn(N, dtype=f64)
    before = [t.clone() for t in (K.values, mask, f, g)]
    cond = Condenser(mask, g)
    K_i, f_i = cond(K, f)
    cond.recover(K_i.solve(f_i))
    f_i.zero_()
    K_i.values.zero_()
    assert all(map(torch.equal, (K.values, mask, f, g), before))


# -- as a module ---------------------------------------------------------------------------------


def test_state_dict_holds_mask_and_values(K, mask):
    g = torch.randn(N, dtype=f64)
    cond = Condenser(mask, g)
    cond(K)
    assert sorted(cond.state_dict()) == ["dirichlet_mask", "dirichlet_value"]
    other = Condenser(~mask, torch.zeros(N, dtype=f64))
    other(K)
    other.load_state_dict(cond.state_dict())
    assert torch.equal(other(K)[1], cond(K)[1])
    assert torch.equal(other(K)[0].to_dense(), cond(K)[0].to_dense())


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda c: pickle.loads(pickle.dumps(c))])
@pytest.mark.parametrize("used", [False, True])
def test_copies_and_pickles(K, mask, copied, used):
    cond = Condenser(mask, torch.randn(N, dtype=f64))
    if used:
        cond(K)
    other = copied(cond)
    assert torch.equal(other(K)[1], cond(K)[1])


def test_conversion_moves_the_values(K, mask):
    cond = Condenser(mask, torch.ones(N, dtype=f64)).float()
    assert cond.dirichlet_value.dtype == torch.float32
    assert cond.dirichlet_mask.dtype == torch.bool
    assert cond(K.float())[1].dtype == torch.float32


# -- derivatives ---------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [f64, c128])
@pytest.mark.parametrize("columns", [(), (2,)])
def test_derivatives_of_the_solution(dtype, columns):
    """features | Condenser: differentiable."""
    K, mask = regular(6, dtype), torch.arange(6) % 3 == 0

    def solution(values, f, g):
        cond = Condenser(mask, g)
        K_i, f_i = cond(K._with_values(values), f)
        return cond.recover(K_i.solve(f_i))

    values = K.values.clone().requires_grad_()
    f = torch.randn(6, *columns, dtype=dtype, requires_grad=True)
    g = torch.randn(int(mask.sum()), dtype=dtype, requires_grad=True)
    assert gradcheck(solution, (values, f, g), fast_mode=True)
    assert gradgradcheck(solution, (values, f, g), fast_mode=True)


@pytest.mark.parametrize("short", [False, True])
def test_values_with_gradients_may_be_used_again(K, mask, short):
    """known-faults | 14: values with gradients are used twice."""
    g = torch.randn(int(mask.sum()) if short else N, dtype=f64, requires_grad=True)
    cond = Condenser(mask, g)
    grads = []
    for _ in range(3):
        g.grad = None
        K_i, f_i = cond(K)
        cond.recover(K_i.solve(f_i)).square().sum().backward()
        grads.append(g.grad)
    assert grads[0].abs().max() > 0
    assert all(torch.equal(grads[0], other) for other in grads)


# -- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mask", "error", "words"),
    [
        (torch.zeros(4), TypeError, "float32"),
        (torch.tensor([0, 2]), TypeError, "int64"),
        ([True, False], TypeError, "list"),
        (torch.zeros(2, 2, dtype=torch.bool), ValueError, "1-D"),
    ],
)
def test_wrong_masks_are_refused(mask, error, words):
    with pytest.raises(error, match=words):
        Condenser(mask)


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (1.0, TypeError),
        ([1.0] * N, TypeError),
        (torch.ones(3), ValueError),
        (torch.tensor(1.0), ValueError),
        (torch.ones(N, 1), ValueError),
    ],
)
def test_wrong_values_are_refused(mask, value, error):
    with pytest.raises(error, match=r"dirichlet_value"):
        Condenser(mask, value)


@pytest.mark.parametrize(
    ("rhs", "error"),
    [
        (torch.ones(N - 1), ValueError),
        (torch.tensor(1.0), ValueError),
        (1.0, TypeError),
        (np.ones(N), TypeError),
    ],
)
def test_wrong_right_hand_sides_are_refused(K, mask, rhs, error):
    with pytest.raises(error, match="rhs"):
        Condenser(mask)(K, rhs)


def test_wrong_matrices_are_refused(K, mask):
    with pytest.raises(TypeError, match="K must be a SparseMatrix"):
        Condenser(mask)(K.to_dense())
    with pytest.raises(TypeError, match="K must be a SparseMatrix"):
        Condenser(mask)(K.to_scipy_coo())
    with pytest.raises(ValueError, match="dirichlet_mask has shape"):
        Condenser(mask[:-1])(K)
    i = torch.arange(N)
    with pytest.raises(ValueError, match="square"):
        Condenser(mask)(SparseMatrix(torch.ones(N), i, i, (N, N + 1)))


def test_vectors_need_a_matrix_first_and_the_right_length(K, mask):
    cond = Condenser(mask)
    for needs_a_matrix in (cond.recover, cond.condense_rhs):
        with pytest.raises(RuntimeError, match="with a matrix first"):
            needs_a_matrix(torch.ones(N))
    with pytest.raises(ValueError, match="12 unknowns"):
        cond.restrict(torch.ones(8))
    with pytest.raises(ValueError, match="expected 8"):
        cond.prolong(torch.ones(N))
    cond(K)
    for move in (cond.recover, cond.prolong):
        with pytest.raises(ValueError, match="expected 8"):
            move(torch.ones(N))
    with pytest.raises(ValueError, match="12 unknowns"):
        cond.restrict(torch.ones(8))
