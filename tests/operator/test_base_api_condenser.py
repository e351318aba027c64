"""The rows of `Condenser`, against elimination by indices with numpy."""

import copy

import numpy as np
import pytest
import torch
from torch.autograd import gradcheck

import tensormesh as tm
from tensormesh.sparse import SparseMatrix
from tests.sparse.matrices import dense, regular

f64 = torch.float64
N = 12


@pytest.fixture
def K():
    return regular(N)


@pytest.fixture
def mask():
    return torch.arange(N) % 3 == 0


def test_row_call(K, mask):
    """base-api 5 | `cond(K, rhs=None)` -> `(K_ii, f_i)`, `f_i = rhs_i - K_io g`."""
    g, f = torch.randn(N, dtype=f64), torch.randn(N, 2, dtype=f64)
    K_i, f_i = tm.Condenser(dirichlet_mask=mask, dirichlet_value=g)(K=K, rhs=f)
    A, o = dense(K), mask
    assert type(K_i) is SparseMatrix
    assert torch.equal(K_i.to_dense(), A[~o][:, ~o])
    assert torch.allclose(f_i, f[~o] - (A[~o][:, o] @ g[o])[:, None])


def test_row_condense_rhs(K, mask):
    """base-api 5 | `condense_rhs(rhs)`: with the cached coupling block of the last matrix."""
    g = torch.randn(int(mask.sum()), dtype=f64)
    cond = tm.Condenser(mask, g)
    with pytest.raises(RuntimeError, match="with a matrix first"):
        cond.condense_rhs(torch.ones(N))
    for A in (K, 3 * K):
        cond(A)
        for rhs in (torch.randn(N, dtype=f64), torch.randn(N, 3, dtype=f64), None):
            assert torch.equal(cond.condense_rhs(rhs), cond(A, rhs)[1])
    cond.update_dirichlet(2 * g)
    f = torch.randn(N, dtype=f64)
    coupling = 3 * dense(K)[~mask][:, mask]
    assert torch.allclose(cond.condense_rhs(f), f[~mask] - coupling @ (2 * g))
    with pytest.raises(ValueError, match="rhs has shape"):
        cond.condense_rhs(f[:-1])


def test_row_condense_rhs_keeps_gradients(K, mask):
    """base-api 5 | `condense_rhs`: gradients flow to K, rhs and values."""
    f, g = (torch.randn(N, dtype=f64, requires_grad=True) for _ in range(2))

    def reduced(values, f, g):
        cond = tm.Condenser(mask, g)
        cond(K._with_values(values))
        return cond.condense_rhs(f)

    assert gradcheck(reduced, (K.values.clone().requires_grad_(), f, g))


def test_row_update_and_recover(K, mask):
    """base-api 5 | `update_dirichlet(value)`, `recover(u_i)`: prescribed values inserted."""
    cond = tm.Condenser(mask)
    K_i, f_i = cond(K, torch.ones(N, dtype=f64))
    assert not cond.recover(K_i.solve(f_i))[mask].any()
    cond.update_dirichlet(torch.full((N,), 2.0))
    u = cond.recover(K_i.solve(cond.condense_rhs(torch.ones(N, dtype=f64))))
    assert u.dtype == f64
    assert torch.equal(u[mask], torch.full((4,), 2.0, dtype=f64))
    assert np.allclose((dense(K) @ u)[~mask], 1)


@pytest.mark.parametrize("trailing", [(), (2,)])
def test_row_restrict_and_prolong(mask, trailing):
    """base-api 5 | `restrict(f)`, `prolong(f_i)`: usable before any call."""
    cond, f = tm.Condenser(mask), torch.randn(N, *trailing)
    assert torch.equal(cond.restrict(f), f[~mask])
    full = cond.prolong(f[~mask])
    assert torch.equal(full[~mask], f[~mask])
    assert not full[mask].any()


def test_row_attributes_after_a_call(K, mask):
    """base-api 5 | `n_dof`, `inner_shape`, `is_inner_edge`, `inner_row`, `K_ou2in`, ..."""
    cond = tm.Condenser(mask)
    K_i, _ = cond(K)
    assert (cond.n_dof, cond.n_inner_dof, cond.n_outer_dof) == (12, 8, 4)
    assert (cond.inner_shape, cond.ou2in_shape) == ((8, 8), (8, 4))
    assert torch.equal(cond.is_inner_dof, ~mask)
    assert torch.equal(cond.is_outer_dof, mask)
    o, i = mask[K.row], mask[K.col]
    assert torch.equal(cond.is_inner_edge, ~o & ~i)
    assert torch.equal(cond.is_ou2in_edge, ~o & i)
    A, inner = dense(K), cond.is_inner_edge
    rebuilt = SparseMatrix(K.values[inner], cond.inner_row, cond.inner_col, cond.inner_shape)
    assert torch.equal(rebuilt.to_dense(), A[~mask][:, ~mask])
    coupling = SparseMatrix(
        K.values[cond.is_ou2in_edge], cond.ou2in_row, cond.ou2in_col, cond.ou2in_shape
    )
    assert torch.equal(coupling.to_dense(), A[~mask][:, mask])
    assert torch.equal(cond.K_ou2in.to_dense(), coupling.to_dense())
    assert cond.layout_signature == K.layout_signature
    assert K_i.shape == cond.inner_shape


def test_row_attributes_need_a_call(mask):
    """base-api 5 | attributes after a call: before one, an error that says so."""
    cond = tm.Condenser(mask)
    for name in ("n_dof", "is_inner_edge", "inner_row", "K_ou2in", "layout_signature"):
        with pytest.raises(RuntimeError, match="with a matrix first"):
            getattr(cond, name)


def test_row_empty_and_full_masks(K):
    """base-api 5 | empty and full masks work."""
    for mask, n in ((torch.zeros(N, dtype=torch.bool), N), (torch.ones(N, dtype=torch.bool), 0)):
        cond = tm.Condenser(mask, torch.arange(float(N)))
        K_i, f_i = cond(K, torch.ones(N, dtype=f64))
        assert K_i.shape == (n, n)
        assert (cond.n_inner_dof, cond.ou2in_shape) == (n, (n, N - n))
        assert f_i.shape == (n,)
        assert cond.recover(f_i).shape == (N,)


def test_row_state_dict(K, mask):
    """base-api 5 | `state_dict`: `dirichlet_mask`, `dirichlet_value` only."""
    cond = tm.Condenser(mask, torch.ones(N))
    cond(K)
    assert sorted(cond.state_dict()) == ["dirichlet_mask", "dirichlet_value"]


def test_copies_after_a_call_with_gradients(K, mask):
    """base-api 5 | `Condenser` is a module: a copy is possible while a graph is alive."""
    K.values = (2 * K.values.clone().requires_grad_()).abs()
    cond = tm.Condenser(mask, torch.ones(N, dtype=f64))
    expected = cond(K)[1]
    other = copy.deepcopy(cond)
    assert torch.equal(other.condense_rhs(None), expected)
    assert cond.condense_rhs(None).requires_grad
    assert not other.condense_rhs(None).requires_grad


class Poisson(tm.ElementAssembler):
    def forward(self, gradu, gradv):
        return gradu @ gradv


class Source(tm.NodeAssembler):
    def forward(self, v, x):
        return 2 * torch.pi**2 * torch.sin(torch.pi * x[0]) * torch.sin(torch.pi * x[1]) * v


def test_quick_start():
    """base-api 5 | the quick start: mesh, class, `from_mesh`, Condenser, solve, recover."""
    errors = []
    for h in (0.1, 0.05):
        mesh = tm.Mesh.gen_rectangle(chara_length=h)
        K = Poisson.from_mesh(mesh)()
        f = Source.from_mesh(mesh)()
        condenser = tm.Condenser(mesh.boundary_mask)
        K_, f_ = condenser(K, f)
        u = condenser.recover(K_.solve(f_))
        exact = torch.sin(torch.pi * mesh.points).prod(dim=1)
        errors.append(float((u - exact).abs().max()))
    assert errors[0] < 0.02
    assert errors[1] < 0.3 * errors[0]  # second order
