"""Every mesh file of the test data, from the file to a solution on three ranks."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import tensormesh as tm
from tensormesh.distributed.device_mesh import DeviceMesh
from tests.distributed.cases import dmesh_of, outcome
from tests.rank_pool import RankPool

FOLDER = Path(__file__).parents[1] / "data"
ONE_CELL = (
    *("hexahedron27", "pyramid14", "wedge18"),
    *("triangle10", "triangle15", "quad16", "quad25"),
    *("tetra20", "tetra35", "hexahedron64", "hexahedron125", "wedge40", "wedge75"),
)
FILES = sorted(path.name for path in FOLDER.iterdir() if path.suffix in (".msh", ".mesh"))


def solution(device_mesh: DeviceMesh, name: str) -> tuple[Tensor, Any]:
    """-div grad u = 1, u = 0 on the physical boundary; the mask is that of this rank's part."""
    mesh = tm.Mesh.read(FOLDER / name)
    dmesh = dmesh_of(mesh, device_mesh, "metis")
    K = tm.distributed_element_assemble(tm.LaplaceElementAssembler, dmesh)
    f = tm.distributed_node_assemble(tm.const_node_assembler(), dmesh)
    condenser = tm.Condenser(dmesh.boundary_mask)
    K_i, f_i = condenser(K, f)
    u = condenser.recover(K_i.solve(f_i, rtol=1e-11))
    return dmesh.gather(u), dmesh.quality().cells.tolist()


def serial_residual(mesh: tm.Mesh, u: Tensor) -> float:
    """Of the equations of the free nodes, by one process."""
    K = tm.LaplaceElementAssembler.from_mesh(mesh)()
    f = tm.const_node_assembler().from_mesh(mesh)()
    free = ~mesh.boundary_mask & mesh.used_points
    return float((K @ u - f)[free].norm() / f.norm())


@pytest.mark.parametrize("name", [name for name in FILES if not name.startswith(ONE_CELL)])
def test_from_the_file_to_a_solution(ranks: RankPool, name: str) -> None:
    """features | files of gmsh: distributed."""
    mesh = tm.Mesh.read(FOLDER / name)
    for u, cells in ranks(3, solution, name):
        assert sum(cells) == mesh.n_elements
        assert min(cells) > 0
        assert bool((u[mesh.boundary_mask] == 0).all())
        assert serial_residual(mesh, u) <= 2e-11
        if mesh.n_points < 1000:  # a direct solution is fast enough
            condenser = tm.Condenser(mesh.boundary_mask)
            K_i, f_i = condenser(
                tm.LaplaceElementAssembler.from_mesh(mesh)(),
                tm.const_node_assembler().from_mesh(mesh)(),
            )
            right = condenser.recover(K_i.solve(f_i))
            torch.testing.assert_close(u, right, rtol=1e-8, atol=1e-11)


def refusal(device_mesh: DeviceMesh, name: str) -> Any:
    return outcome(solution, device_mesh, name)


@pytest.mark.parametrize("name", [name for name in FILES if name.startswith(ONE_CELL)])
def test_one_cell_cannot_be_cut_in_three(ranks: RankPool, name: str) -> None:
    for error in ranks(3, refusal, name):
        assert error[0] == "ValueError"
        assert "num_partitions = 3, but the mesh has only 1 cells" in error[1]
    ((u, cells),) = ranks(1, solution, name)
    assert cells == [1]
    assert serial_residual(tm.Mesh.read(FOLDER / name), u) <= 1e-11


def test_all_files_are_here() -> None:
    assert len(FILES) >= 18
