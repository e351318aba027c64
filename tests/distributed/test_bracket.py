"""The steel bracket: one displacement field whatever the ranks and the partitioner.

Millimetres and newtons: E = 210,000 MPa, nu = 0.3, the faces ``bolts`` fixed, and a total force of
(0, 0, -1000) N spread evenly over the area of the faces ``pins``.
"""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse.linalg as spl
import torch
from numpy.typing import NDArray

import tensormesh as tm
from tensormesh.distributed.device_mesh import DeviceMesh
from tests.distributed.cases import METHODS, dmesh_of
from tests.rank_pool import RankPool

skfem = pytest.importorskip("skfem")

FILE = Path(__file__).parents[1] / "data" / "bracket.msh"
FORCE = (0.0, 0.0, -1000.0)
RTOL = 1e-10  # of the residual; rounding leaves 7e-12


class Traction(tm.FacetAssembler):
    def __post_init__(self, force: tuple[float, float, float]) -> None:
        self.force = torch.tensor(force, dtype=self.dtype)

    def forward(self, v):
        return v[:, None] * self.force


class Area(tm.FacetAssembler):
    def forward(self, v):
        return v


def displacement(device_mesh: DeviceMesh, method: str) -> dict[str, Any]:
    """Displacement of all nodes in the order of the file, from the first rank."""
    mesh = tm.Mesh.read(FILE)
    dmesh = dmesh_of(mesh, device_mesh, method)
    K = tm.distributed_element_assemble(
        tm.LinearElasticityElementAssembler, dmesh, E=210_000.0, nu=0.3
    )
    area = dmesh.sum(tm.distributed_node_assemble(Area, dmesh, boundary_mask="pins"))
    f = tm.distributed_node_assemble(Traction, dmesh, boundary_mask="pins", force=FORCE) / area
    fixed = torch.zeros(mesh.n_points, dtype=torch.bool)
    for kind, cells in mesh.group("bolts").items():
        fixed[mesh.cells[kind][cells]] = True
    condenser = tm.Condenser(fixed.repeat_interleave(3))
    K_i, f_i = condenser(K, f)
    u_i, info = K_i.solve(f_i, rtol=RTOL, return_info=True)
    u = dmesh.gather(condenser.recover(u_i))
    return {
        "u": u.reshape(-1, 3).numpy()
        if device_mesh is None or device_mesh.get_local_rank() == 0
        else None,
        "force": [float(dmesh.sum(f[i::3])) for i in range(3)],
        "area": float(area),
        "iterations": info.iterations,
        "residual": info.residual,
        "seconds": info.seconds,
    }


@cache
def by_scikit_fem() -> NDArray[np.float64]:
    """Displacement of all nodes by another finite-element program and another solver."""
    from skfem.helpers import ddot, sym_grad, trace

    mesh = skfem.MeshTet.load(FILE)
    basis = skfem.Basis(mesh, skfem.ElementVector(skfem.ElementTetP1()))
    lam = 210_000.0 * 0.3 / (1.3 * 0.4)
    mu = 210_000.0 / 2.6

    @skfem.BilinearForm
    def stiffness(u, v, _):
        eps_u, eps_v = sym_grad(u), sym_grad(v)
        return lam * trace(eps_u) * trace(eps_v) + 2 * mu * ddot(eps_u, eps_v)

    @skfem.LinearForm
    def down(v, _):
        return v[2]

    @skfem.Functional
    def one(_):
        return 1.0

    pins = skfem.FacetBasis(mesh, basis.elem, facets="pins")
    K = stiffness.assemble(basis)
    f = FORCE[2] / one.assemble(pins) * down.assemble(pins)
    free = basis.complement_dofs(basis.get_dofs("bolts"))
    A, b = K[free][:, free].tocsr(), f[free]
    inverse = 1.0 / A.diagonal()
    jacobi = spl.LinearOperator(A.shape, lambda r: inverse * r.ravel())
    x, failure = spl.cg(A, b, rtol=1e-13, maxiter=20_000, M=jacobi)
    assert failure == 0
    u = np.zeros_like(f)
    u[free] = x
    field = u[basis.nodal_dofs].T
    order = np.lexsort(mesh.p)
    points = tm.Mesh.read(FILE).points.numpy()
    back = np.empty_like(order)
    back[np.lexsort(points.T)] = order
    np.testing.assert_array_equal(mesh.p.T[back], points)
    return field[back]


def distance(u: NDArray[np.float64], v: NDArray[np.float64]) -> float:
    return float(np.abs(u - v).max() / np.abs(v).max())


def check(ranks: RankPool, n: int, method: str) -> dict[str, Any]:
    found = ranks(n, displacement, method, timeout=240.0)
    for got in found:
        assert got["force"] == pytest.approx(FORCE, abs=1e-9)
        assert got["residual"] <= RTOL
        assert got["iterations"] == found[0]["iterations"]
    assert distance(found[0]["u"], by_scikit_fem()) <= 1e-8
    return found[0]


def test_the_bracket_on_two_ranks_is_that_of_scikit_fem(ranks: RankPool) -> None:
    assert check(ranks, 2, "coordinate")["area"] > 0


@pytest.mark.slow
def test_one_displacement_whatever_the_ranks_and_the_partitioner(ranks: RankPool) -> None:
    results = {(n, m): check(ranks, n, m) for n in (1, 2, 3, 4) for m in METHODS}
    first = results[1, "coordinate"]["u"]
    assert {key for key, got in results.items() if distance(got["u"], first) > 1e-9} == set()
    iterations = [got["iterations"] for got in results.values()]
    assert max(iterations) - min(iterations) <= 0.02 * max(iterations)
