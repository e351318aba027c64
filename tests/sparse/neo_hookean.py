"""A neo-Hookean cantilever by scikit-fem, its stress and tangent written by hand."""

import numpy as np
import scipy.sparse.linalg as spl
from skfem import BilinearForm, LinearForm, asm
from skfem.helpers import ddot, eye, grad, inv, mul, transpose

import tensormesh as tm
from tests.assemble.scikit_fem import basis_of, unknowns

E, NU = 2.0, 0.3
MU, LAM = E / (2 * (1 + NU)), E * NU / ((1 + NU) * (1 - 2 * NU))


def beam(n: int = 6) -> tm.Mesh:
    """A beam of 4 x 1 x 1 along x, in `n` x 2 x 2 boxes of tetrahedra."""
    mesh = tm.Mesh.gen_cube(n=(n, 2, 2)).double()
    return tm.Mesh.from_arrays(
        mesh.points * mesh.points.new_tensor([4.0, 1.0, 1.0]), mesh.top_cells()
    )


def _state(w):
    F = grad(w["u"]) + eye(1.0 + 0 * w.x[0], 3)
    J = np.linalg.det(F.transpose(2, 3, 0, 1))
    return F, inv(F), np.log(J)


@BilinearForm
def _tangent(du, v, w):
    _, Fi, log_j = _state(w)
    dF = grad(du)
    turned = transpose(mul(Fi, mul(dF, Fi)))
    stress = MU * dF + (MU - LAM * log_j) * turned
    stress = stress + LAM * ddot(transpose(Fi), dF) * transpose(Fi)
    return ddot(stress, grad(v))


@LinearForm
def _force(v, w):
    F, Fi, log_j = _state(w)
    stress = MU * (F - transpose(Fi)) + LAM * log_j * transpose(Fi)
    return ddot(stress, grad(v))


def reference(mesh: tm.Mesh, load: np.ndarray) -> np.ndarray:
    """Displacement ``[n * 3]`` of `mesh`, held at ``x = 0``, under nodal forces ``[n * 3]``."""
    basis = basis_of(mesh, 2, 3)
    number = unknowns(mesh, basis, 3)
    f = load[number]
    free = np.flatnonzero(basis.doflocs[0] > 1e-12)
    u = np.zeros(len(number))
    for share in np.linspace(0, 1, 9)[1:]:
        for _ in range(20):
            field = basis.interpolate(u)
            r = (share * f - asm(_force, basis, u=field))[free]
            if np.linalg.norm(r) < 1e-11 * np.linalg.norm(f):
                break
            K = asm(_tangent, basis, u=field).tocsc()[np.ix_(free, free)]
            u[free] += spl.spsolve(K, r)
        else:
            raise RuntimeError("the reference did not converge")
    found = np.zeros(len(number))
    found[number] = u
    return found
