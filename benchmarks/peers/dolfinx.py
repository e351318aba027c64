"""Process that assembles with DOLFINx 0.5: `python3 -m peers.dolfinx`, or under mpirun."""

from typing import Any

import basix
import dolfinx
import numpy as np
import ufl
from basix.ufl_wrapper import create_element, create_vector_element
from cases import LAMBDA, MU, Case
from dolfinx import fem
from dolfinx.fem import petsc
from dolfinx.mesh import CellType, GhostMode, create_unit_cube
from fields import coefficient, moved, probe
from harness import Peer, main
from mpi4py import MPI
from petsc4py import PETSc

# The fastest code that its form compiler is known to give on one machine.
JIT = {"cffi_extra_compile_args": ["-O3", "-march=native"]}


class Dolfinx(Peer):
    """PETSc's matrices, filled by compiled forms."""

    name = "DOLFINx"
    has_symbolic_phase = True

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self.comm = MPI.COMM_WORLD
        self.ranks, self.root = self.comm.size, self.comm.rank == 0

    def version(self) -> str:
        """Version of the package."""
        return str(dolfinx.__version__)

    def make_mesh(self) -> None:
        """Make, partition and distribute the cube."""
        kind = CellType.tetrahedron if self.case.is_simplex else CellType.hexahedron
        self.mesh = create_unit_cube(self.comm, *self.case.n, kind, GhostMode.none)

    def prepare(self) -> None:
        """Function space, coefficient and compiled form."""
        mesh, case = self.mesh, self.case
        self.start = mesh.geometry.x.copy()
        # Nodes evenly spaced, as ours: from order 3 on it has others by default.
        spaced = {"lagrange_variant": basix.LagrangeVariant.equispaced}
        lagrange = create_element("P", mesh.ufl_cell().cellname(), case.order, **spaced)
        vector = create_vector_element("P", mesh.ufl_cell().cellname(), case.order, **spaced)
        self.space = fem.FunctionSpace(mesh, vector if case.n_unknowns > 1 else lagrange)
        cellwise = case.form.endswith("-cell")
        self.c = fem.Function(fem.FunctionSpace(mesh, ("DG", 0) if cellwise else lagrange))
        self.places = self.c.function_space.tabulate_dof_coordinates()
        self.nodes = self.space.tabulate_dof_coordinates()
        self.set_coefficient(0)
        self.form = fem.form(self._integral(), jit_params=JIT)

    def _integral(self) -> ufl.Form:
        u, v = ufl.TrialFunction(self.space), ufl.TestFunction(self.space)
        dx = ufl.dx(domain=self.mesh, metadata={"quadrature_degree": self.case.degree})
        form = self.case.form
        if form == "load":
            return self.c * v * dx
        if form == "mass":
            return u * v * dx
        if form.startswith("laplace"):
            integrand = ufl.inner(ufl.grad(u), ufl.grad(v))
        else:
            strain, stretch = ufl.sym(ufl.grad(u)), ufl.div(u)
            stress = 2 * MU * strain + LAMBDA * stretch * ufl.Identity(3)
            integrand = ufl.inner(stress, ufl.sym(ufl.grad(v)))
        return (self.c * integrand if "-" in form else integrand) * dx

    def make_pattern(self) -> None:
        """Empty matrix or vector."""
        if self.case.is_vector:
            self.result = petsc.create_vector(self.form)
        else:
            self.result = petsc.create_matrix(self.form)

    def set_coefficient(self, k: int) -> None:
        """Set the coefficient's values."""
        self.c.x.array[:] = coefficient(self.places, k)

    def move(self, k: int) -> None:
        """Set the mesh's coordinates."""
        self.mesh.geometry.x[:] = moved(self.start, k, self.case.order)

    def assemble(self) -> Any:
        """Fill with new values and exchange those of other ranks' rows."""
        if self.case.is_vector:
            with self.result.localForm() as local:
                local.set(0)
            petsc.assemble_vector(self.result, self.form)
            self.result.ghostUpdate(PETSc.InsertMode.ADD, PETSc.ScatterMode.REVERSE)
        else:
            self.result.zeroEntries()
            petsc.assemble_matrix(self.result, self.form)
            self.result.assemble()
        return self.result

    def facts(self, result: Any) -> dict[str, float]:
        """By PETSc's products and norms."""
        x = fem.Function(self.space)
        x.x.array[:] = probe(self.nodes, self.case.n_unknowns).ravel()
        vector = x.vector
        if self.case.is_vector:
            entries, total, norm, image = vector.getSize(), result.sum(), result.norm(), result
        else:
            ones, image = result.createVecs()
            ones.set(1)
            result.mult(ones, image)
            total = image.sum()
            entries = result.getInfo(PETSc.Mat.InfoType.GLOBAL_SUM)["nz_used"]
            norm = result.norm(PETSc.NormType.FROBENIUS)
            result.mult(vector, image)
        return {
            "size": float(vector.getSize()),
            "entries": float(entries),
            "sum": total,
            "norm": norm,
            "energy": vector.dot(image),
        }

    def barrier(self) -> None:
        """Wait for the other ranks."""
        self.comm.barrier()

    def maxima(self, values: list[float]) -> list[float]:
        """Largest of each value over the ranks."""
        largest = np.array(values)
        self.comm.Allreduce(MPI.IN_PLACE, largest, MPI.MAX)
        return largest.tolist()


if __name__ == "__main__":
    main(Dolfinx)
