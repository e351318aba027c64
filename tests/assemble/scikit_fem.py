"""The same matrices by scikit-fem, in this package's numbering of unknowns."""

import meshio
import numpy as np
import scipy.sparse as sp
import skfem
from scipy.spatial import cKDTree
from skfem.io.meshio import from_meshio

from tensormesh.element.cell_type import cell_type
from tensormesh.mesh.mesh import Mesh

ELEMENTS = {
    ("triangle", 1): skfem.ElementTriP1,
    ("triangle", 2): skfem.ElementTriP2,
    ("triangle", 3): skfem.ElementTriP3,
    ("triangle", 4): skfem.ElementTriP4,
    ("quad", 1): skfem.ElementQuad1,
    ("quad", 2): skfem.ElementQuad2,
    ("tetra", 1): skfem.ElementTetP1,
    ("tetra", 2): skfem.ElementTetP2,
    ("hexahedron", 1): skfem.ElementHex1,
    ("hexahedron", 2): skfem.ElementHex2,
}


def basis_of(mesh: Mesh, degree: int, n_components: int = 1) -> skfem.CellBasis:
    """Basis of the order of `mesh`, whose cells are straight, with a rule of `degree`."""
    ((kind, cells),) = mesh.top_cells().items()
    of = cell_type(kind)
    vertices = cells[:, : of.n_vertices].numpy()
    geometry = from_meshio(meshio.Mesh(mesh.points.numpy(), [(of.shape, vertices)]))
    element = ELEMENTS[of.shape, of.order]()
    if n_components > 1:
        element = skfem.ElementVector(element, n_components)
    return skfem.CellBasis(geometry, element, intorder=degree)


def unknowns(mesh: Mesh, basis: skfem.CellBasis, n_components: int = 1) -> np.ndarray:
    """For each unknown of `basis`, that of this package: ``node * n_components + component``."""
    distance, node = cKDTree(mesh.points.numpy()).query(basis.doflocs.T)
    used = np.unique(basis.element_dofs)
    assert distance[used].max() < 1e-12
    component = np.zeros(basis.doflocs.shape[1], dtype=int)
    for dofs in (basis.nodal_dofs, basis.edge_dofs, basis.facet_dofs, basis.interior_dofs):
        for row, numbers in enumerate(np.atleast_2d(dofs)):
            component[numbers] = row % n_components
    return node * n_components + component


def reordered(matrix: sp.spmatrix, mesh: Mesh, basis: skfem.CellBasis, h: int = 1) -> np.ndarray:
    """Dense matrix in the order of this package."""
    dense = np.zeros((mesh.n_points * h,) * 2, dtype=matrix.dtype)
    number = unknowns(mesh, basis, h)
    used = np.unique(basis.element_dofs)
    dense[np.ix_(number[used], number[used])] = matrix.toarray()[np.ix_(used, used)]
    return dense
