"""The pieces of the hierarchy: products of gathered matrices, near-null vectors, aggregates."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch

import tensormesh as tm
from tensormesh.distributed.device_mesh import DeviceMesh
from tensormesh.distributed.multigrid import Hierarchy, build, finest_level
from tensormesh.distributed.multigrid.tentative import tentative_prolongator
from tensormesh.distributed.preconditioner.multilevel import constants
from tests.distributed.cases import NOTHING_OWNED, dmesh_of, mesh_of
from tests.rank_pool import RankPool

SIZES = [1, 2, 3, 4]


def poisson(device_mesh: DeviceMesh, cut: Any = "coordinate") -> tm.DSparseMatrix:
    mesh = tm.Mesh.gen_cube(n=(5, 4, 3)) if cut != NOTHING_OWNED else mesh_of("grid")
    K = tm.distributed_element_assemble(
        tm.LaplaceElementAssembler, dmesh_of(mesh, device_mesh, cut)
    )
    return tm.Condenser(mesh.points[:, 0] == 0)(K)[0]


def elastic(device_mesh: DeviceMesh, held: bool = True) -> tm.DSparseMatrix:
    """Plane; one side slides, so that some nodes have one unknown only."""
    mesh = tm.Mesh.gen_rectangle(n=(9, 7))
    dmesh = dmesh_of(mesh, device_mesh)
    K = tm.distributed_element_assemble(tm.LinearElasticityElementAssembler, dmesh)
    fixed = torch.stack([mesh.points[:, 0] == 0, mesh.points.sum(1) == 0], dim=1)
    return tm.Condenser(fixed.flatten())(K)[0] if held else K


def hierarchy_of(A: tm.DSparseMatrix, theta: float = 0.0, max_coarse: int = 4) -> Hierarchy:
    scale = A.diagonal().rsqrt()
    level = finest_level(A.layout, A.values, scale, constants(A.layout))
    return build(level, theta, max_coarse, torch.float64)


def numbers(layout: Any) -> np.ndarray:
    """Global number of each local unknown."""
    nodes = layout.index_map.local_to_global.numpy()
    return (nodes[:, None] * layout.h + np.arange(layout.h)).ravel()


def pieces(device_mesh: DeviceMesh, system: Any, args: tuple[Any, ...]) -> list[dict[str, Any]]:
    """Rows of this rank, in global numbers, of each level."""
    hierarchy = hierarchy_of(system(device_mesh, *args))
    found = []
    for i, level in enumerate(hierarchy.levels):
        own = numbers(level.layout)
        piece = {
            "n": level.n_global,
            "rows": own[: level.n_owned],
            "columns": own,
            "A": level.matrix,
            "B": level.near_null_space,
        }
        if i < len(hierarchy.steps):
            step = hierarchy.steps[i]
            piece |= {"P": step.prolongator, "coarse": numbers(step.coarse)}
            piece["largest"] = step.largest
        found.append(piece)
    return found


def together(
    levels: list[dict[str, Any]], name: str, columns: str, shape: tuple[int, int]
) -> sp.csr_matrix:
    """Global matrix of the rows of all ranks."""
    total = sp.csr_matrix(shape)
    for level in levels:
        M = level[name].tocoo()
        row, col = level["rows"][M.row], level[columns][M.col]
        total = total + sp.csr_matrix((M.data, (row, col)), shape=shape)
    return total


def vectors(levels: list[dict[str, Any]]) -> np.ndarray:
    B = np.zeros((levels[0]["n"], levels[0]["B"].shape[1]))
    for level in levels:
        B[level["rows"]] = level["B"]
    return B


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize(
    ("system", "args"), [(poisson, ()), (elastic, ()), (elastic, (False,)), (poisson, ("metis",))]
)
def test_each_level_is_the_galerkin_product_of_the_one_above(
    ranks: RankPool, n: int, system: Any, args: tuple[Any, ...]
) -> None:
    by_level = list(zip(*ranks(n, pieces, system, args), strict=True))
    assert len(by_level) >= 2
    for fine, coarse in pairwise(by_level):
        m, k = fine[0]["n"], coarse[0]["n"]
        A = together(fine, "A", "columns", (m, m))
        P = together(fine, "P", "coarse", (m, k))
        A_coarse = together(coarse, "A", "columns", (k, k))
        assert abs(P.T @ A @ P - A_coarse).max() < 1e-12
        held = A_coarse.diagonal() > 1e-10
        np.testing.assert_allclose(A_coarse.diagonal()[held], 1.0, rtol=1e-12)


@pytest.mark.parametrize("n", SIZES)
def test_coarse_vectors_are_the_near_null_space(ranks: RankPool, n: int) -> None:
    """Smoothing ``T B_c = B`` gives ``P B_c = (I - 4/3 A / largest) B``."""
    for system in (poisson, elastic):
        fine, coarse = list(zip(*ranks(n, pieces, system, ()), strict=True))[:2]
        m, k = fine[0]["n"], coarse[0]["n"]
        A = together(fine, "A", "columns", (m, m))
        P = together(fine, "P", "coarse", (m, k))
        B = vectors(fine)
        expected = B - 4 / 3 / fine[0]["largest"] * (A @ B)
        np.testing.assert_allclose(P @ vectors(coarse), expected, atol=1e-12)
        true = np.linalg.eigvalsh(A.toarray())[-1]
        assert 0.85 * true < fine[0]["largest"] < 1.0001 * true


def test_a_rank_without_rows_coarsens_too(ranks: RankPool) -> None:
    found = ranks(2, pieces, poisson, (NOTHING_OWNED,))
    assert [level["rows"].size for level in found[1]] == [0] * len(found[1])
    m, k = found[0][0]["n"], found[0][1]["n"]
    A = together([r[0] for r in found], "A", "columns", (m, m))
    P = together([r[0] for r in found], "P", "coarse", (m, k))
    A_coarse = together([r[1] for r in found], "A", "columns", (k, k))
    assert abs(P.T @ A @ P - A_coarse).max() < 1e-12


def test_tentative_prolongator_is_orthonormal_and_reproduces_the_vectors() -> None:
    """Also where aggregates are so small that the vectors depend on each other."""
    rng = np.random.default_rng(0)
    aggregate = np.array([0, 0, 0, 0, 1, 1, -1, 2, 3, 3, 3])
    B = rng.standard_normal((11, 3))
    B[8:, 2] = B[8:, 0] - 2 * B[8:, 1]
    T, nodes, coarse = tentative_prolongator(aggregate, 4, B)
    np.testing.assert_array_equal(nodes, [0, 0, 0, 1, 1, 2, 3, 3])
    np.testing.assert_allclose((T.T @ T).toarray(), np.eye(8), atol=1e-14)
    inside = aggregate >= 0
    np.testing.assert_allclose((T @ coarse)[inside], B[inside], atol=1e-13)
    assert T[6].nnz == 0


def alone(device_mesh: DeviceMesh) -> list[int]:
    """A diagonal matrix has nothing to coarsen."""
    mesh = mesh_of("tri")
    dmesh = dmesh_of(mesh, device_mesh)
    K = tm.distributed_element_assemble(tm.MassElementAssembler, dmesh)
    pattern = K.layout.pattern
    K = K._with_values(K.values * (pattern.row == pattern.col))
    return [level.n_global for level in hierarchy_of(K, theta=0.1).levels]


def test_weak_connections_make_no_aggregates(ranks: RankPool) -> None:
    for sizes in ranks(2, alone):
        assert sizes == [42, 0]
