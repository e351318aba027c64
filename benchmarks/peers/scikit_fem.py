"""Process that assembles with scikit-fem: `python -m peers.scikit_fem`."""

from dataclasses import replace
from typing import Any

import numpy as np
import skfem
from cases import LAMBDA, MU
from cube import cube_points, kuhn_tetrahedra
from fields import coefficient, moved, probe
from harness import Peer, main
from skfem.helpers import ddot, dot, grad, sym_grad
from skfem.models.elasticity import linear_stress

ELEMENTS = {
    "P1": skfem.ElementTetP1,
    "P2": skfem.ElementTetP2,
    "Q1": skfem.ElementHex1,
    "Q2": skfem.ElementHex2,
}


def _laplace(u: Any, v: Any, w: Any) -> Any:
    return dot(grad(u), grad(v))


def _diffusion(u: Any, v: Any, w: Any) -> Any:
    return w.c * dot(grad(u), grad(v))


def _mass(u: Any, v: Any, w: Any) -> Any:
    return u * v


def _elasticity(u: Any, v: Any, w: Any) -> Any:
    return ddot(linear_stress(LAMBDA, MU)(sym_grad(u)), sym_grad(v))


def _elasticity_cell(u: Any, v: Any, w: Any) -> Any:
    return w.c * _elasticity(u, v, w)


FORMS = {
    "laplace": _laplace,
    "laplace-cell": _diffusion,
    "laplace-nodal": _diffusion,
    "mass": _mass,
    "elasticity": _elasticity,
    "elasticity-cell": _elasticity_cell,
}


class ScikitFem(Peer):
    """NumPy over all cells, a pair of basis functions at a time; scipy's matrices."""

    name = "scikit-fem"

    def version(self) -> str:
        """Version of the package."""
        return str(skfem.__version__)

    def make_mesh(self) -> None:
        """Make the cube."""
        n = self.case.n
        if self.case.is_simplex:
            self.mesh = skfem.MeshTet(cube_points(n).T, kuhn_tetrahedra(n).T)
        else:
            axes = [np.linspace(0, 1, k + 1) for k in n]
            self.mesh = skfem.MeshHex.init_tensor(*axes)

    def prepare(self) -> None:
        """Element, places of nodes and midpoints, coefficient 0."""
        self.element = ELEMENTS[self.case.element]()
        if self.case.n_unknowns > 1:
            self.element = skfem.ElementVector(self.element)
        self.start = self.mesh.p.T.copy()
        self.basis = self._new_basis()
        cellwise = self.case.form.endswith("-cell")
        nodes = self.basis.doflocs.T
        self.places = self.start[self.mesh.t].mean(0) if cellwise else nodes
        x = probe(nodes, self.case.n_unknowns)
        # The unknowns of a node have the same place, one component each.
        self.probe = x[np.arange(len(nodes)), np.arange(len(nodes)) % self.case.n_unknowns]
        self.set_coefficient(0)

    def _new_basis(self) -> Any:
        return skfem.Basis(self.mesh, self.element, intorder=max(self.case.degree, 1))

    def make_pattern(self) -> None:
        """Basis: geometry, and the basis functions at all quadrature points."""
        self.basis = self._new_basis()

    def set_coefficient(self, k: int) -> None:
        """Keep the values; the call takes them to the quadrature points."""
        self.values = coefficient(self.places, k)

    def move(self, k: int) -> None:
        """Make a mesh with other coordinates; the call makes its basis."""
        self.mesh = replace(self.mesh, doflocs=moved(self.start, k, self.case.order).T)
        self.basis = None

    def assemble(self) -> Any:
        """Basis if the points are new, then the form."""
        self.basis = self.basis or self._new_basis()
        if self.case.is_vector:
            form = skfem.LinearForm(lambda v, w: w.c * v)
        else:
            form = skfem.BilinearForm(FORMS[self.case.form])
        return form.assemble(self.basis, **self._data())

    def _data(self) -> dict[str, Any]:
        if self.case.form.endswith("-cell"):
            return {"c": np.broadcast_to(self.values[:, None], self.basis.dx.shape)}
        if self.case.form in ("laplace-nodal", "load"):
            return {"c": self.basis.interpolate(self.values)}
        return {}

    def facts(self, result: Any) -> dict[str, float]:
        """By numpy and scipy."""
        entries = result if self.case.is_vector else result.data
        image = result if self.case.is_vector else result @ self.probe
        return {
            "size": float(len(self.probe)),
            "entries": float(entries.size),
            "sum": float(entries.sum()),
            "norm": float(np.linalg.norm(entries)),
            "energy": float(self.probe @ image),
        }


if __name__ == "__main__":
    main(ScikitFem)
