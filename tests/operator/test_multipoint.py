"""Multi-point constraints: periodic solutions, chains, dense products, gradients, refusals."""

import math

import pytest
import torch
from torch.autograd import gradcheck

import tensormesh as tm
from tensormesh.operator import MultiPoint, periodic_pairs

f64 = torch.float64


class Load(tm.NodeAssembler):
    def forward(self, v, x):
        return (2 * math.pi) ** 2 * x.shape[0] * wave(x) * v


def wave(x):
    return torch.cos(2 * math.pi * x - 0.7).prod(-1)


def periodic_error(mesh):
    """Of ``-laplace u = f``, held at the origin, whose images are three or seven corners."""
    dim = mesh.dim
    K = tm.LaplaceElementAssembler.from_mesh(mesh)()
    f = Load.from_mesh(mesh, quadrature_order=5)()
    sides = MultiPoint(mesh.n_points, *periodic_pairs(mesh.points, torch.eye(dim, dtype=f64)))
    K_r, f_r = sides(K, f)
    exact = wave(mesh.points)
    held = sides.restrict(mesh.points.norm(dim=1) < 1e-12)
    assert int(held.sum()) == 1
    condenser = tm.Condenser(held, sides.restrict(exact))
    u = sides.recover(condenser.recover(condenser(K_r, f_r)[0].solve(condenser(K_r, f_r)[1])))
    for slave, master in zip(*periodic_pairs(mesh.points, torch.eye(dim, dtype=f64)), strict=True):
        assert u[slave] == u[master]
    M = tm.MassElementAssembler.from_mesh(mesh)()
    e = u - exact
    one = torch.ones_like(e)
    e = e - (one @ (M @ e)) / (one @ (M @ one))
    return float((e @ (M @ e)).sqrt())


@pytest.mark.parametrize(
    ("make", "n", "order"),
    [
        (lambda n: tm.Mesh.gen_rectangle(n=(n, n)), 10, 2),
        (lambda n: tm.Mesh.gen_rectangle(n=(n, n), order=2), 8, 3),
        (lambda n: tm.Mesh.gen_cube(n=(n, n, n), element_type="hex"), 5, 2),
    ],
)
def test_periodic_poisson_converges(make, n, order):
    """features | MultiPoint, periodic_pairs: serial."""
    coarse, fine = periodic_error(make(n)), periodic_error(make(2 * n))
    assert coarse / fine > 0.8 * 2**order


def chained():
    """5 follows 3 and 4, 3 follows 0 and 1: ``u_3 = 2 u_0 - u_1``, ``u_5 = u_3 / 2 + u_4``."""
    slave, master = torch.tensor([5, 5, 3, 3]), torch.tensor([3, 4, 0, 1])
    return MultiPoint(6, slave, master, torch.tensor([0.5, 1.0, 2.0, -1.0], dtype=f64))


def test_chains_offsets_and_gradients():
    """features | MultiPoint: differentiable."""
    generator = torch.Generator().manual_seed(0)
    A = torch.rand(6, 6, generator=generator, dtype=f64) + 6 * torch.eye(6, dtype=f64)
    f, g = torch.rand(2, 6, generator=generator, dtype=f64)
    T = torch.zeros(6, 4, dtype=f64)
    T[[0, 1, 2, 4], [0, 1, 2, 3]] = 1.0
    T[3, :2] = torch.tensor([2.0, -1.0], dtype=f64)
    T[5] = 0.5 * T[3] + T[4]
    zero = torch.zeros((), dtype=f64)
    full = torch.stack([zero, zero, zero, g[3], zero, 0.5 * g[3] + g[5]])
    K = tm.SparseMatrix.from_dense(A)
    K_r, f_r = chained()(K, f, g)
    torch.testing.assert_close(K_r.to_dense(), T.T @ A @ T)
    torch.testing.assert_close(f_r, T.T @ (f - A @ full))
    u = chained().recover(K_r.solve(f_r), g)
    torch.testing.assert_close(u[5], 0.5 * u[3] + u[4] + g[5])
    torch.testing.assert_close(u[3], 2 * u[0] - u[1] + g[3])

    def solution(values, g):
        K_r, f_r = chained()(K._with_values(values), f, g)
        return chained().recover(K_r.solve(f_r), g)

    assert gradcheck(solution, (K.values.clone().requires_grad_(), g.clone().requires_grad_()))


def test_columns_share_an_offset_and_what_is_no_slave_does_not_count():
    K = tm.SparseMatrix.from_dense(torch.eye(6, dtype=f64) + 0.1)
    f = torch.arange(12, dtype=f64).view(6, 2)
    g = torch.tensor([math.nan, math.nan, math.nan, 3.0, math.nan, 5.0], dtype=f64)
    both = chained()(K, f, g)[1]
    apart = [chained()(K, x, torch.nan_to_num(g))[1] for x in f.unbind(1)]
    torch.testing.assert_close(both, torch.stack(apart, dim=1))
    u = chained().recover(both, g)
    torch.testing.assert_close(u[5], 0.5 * u[3] + u[4] + 5.0)
    each = chained().recover(both, torch.stack([g, g], dim=1))
    torch.testing.assert_close(each, u)


def test_a_matrix_stands_for_its_number_of_unknowns():
    K = tm.SparseMatrix.from_dense(torch.eye(3, dtype=torch.float32) + 0.1)
    ties = MultiPoint(K, torch.tensor([1]), torch.tensor([2]))
    assert ties.n_reduced == 2
    assert ties(K, torch.ones(3))[0].values.dtype == torch.float32
    with pytest.raises(ValueError, match="square"):
        MultiPoint(tm.SparseMatrix.from_dense(torch.ones(2, 3)), *[torch.tensor([1])] * 2)


def test_bad_input_is_refused():
    mesh = tm.Mesh.gen_rectangle(n=(3, 3))
    one, two = torch.tensor([1]), torch.tensor([2])
    with pytest.raises(ValueError, match="leads from no node"):
        periodic_pairs(mesh.points, torch.tensor([[0.9, 0.0]], dtype=f64))
    with pytest.raises(ValueError, match="points and translations"):
        periodic_pairs(mesh.points, torch.ones(3, dtype=f64))
    with pytest.raises(ValueError, match="cycle"):
        MultiPoint(3, torch.cat([one, two]), torch.cat([two, one]))
    with pytest.raises(ValueError, match="master holds"):
        MultiPoint(2, one, two)
    with pytest.raises(ValueError, match=r"\[n_terms\]"):
        MultiPoint(3, one, torch.tensor([0, 2]))
    with pytest.raises(TypeError, match="K must be"):
        MultiPoint(3, one, two)(torch.eye(3), torch.ones(3))
    with pytest.raises(ValueError, match="expected 4 unknowns"):
        MultiPoint(4, one, two)(tm.SparseMatrix.eye(3), torch.ones(3))
    with pytest.raises(TypeError, match="number of unknowns, or a matrix"):
        MultiPoint(3.0, one, two)
    with pytest.raises(TypeError, match="slave must be an integer"):
        MultiPoint(3, [1], two)
    with pytest.raises(TypeError, match="real numbers"):
        MultiPoint(3, one, two, torch.tensor([1j]))
    ties = MultiPoint(3, one, two)
    with pytest.raises(ValueError, match="expected 3 unknowns"):
        ties(tm.SparseMatrix.eye(3), torch.ones(4))
    with pytest.raises(TypeError, match="f must be a tensor"):
        ties(tm.SparseMatrix.eye(3), [1.0, 1.0, 1.0])
    with pytest.raises(ValueError, match="offset has shape"):
        ties(tm.SparseMatrix.eye(3), torch.ones(3), torch.ones(3, 2))
    with pytest.raises(ValueError, match="the reduced vector"):
        ties.recover(torch.ones(3))
    with pytest.raises(ValueError, match="tolerance must be positive"):
        periodic_pairs(mesh.points, torch.eye(2, dtype=f64), -1.0)
    with pytest.raises(TypeError, match="points must be a tensor"):
        periodic_pairs(mesh, torch.eye(2, dtype=f64))
