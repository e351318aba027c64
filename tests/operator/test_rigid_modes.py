"""Rigid motions: what no strain sees."""

from collections.abc import Callable

import pytest
import torch

import tensormesh as tm
from tensormesh.operator import rigid_modes


@pytest.mark.parametrize(
    ("generate", "n", "k"), [(tm.Mesh.gen_rectangle, (4, 3), 3), (tm.Mesh.gen_cube, (2, 3, 2), 6)]
)
def test_elasticity_maps_them_to_zero(
    generate: Callable[..., tm.Mesh], n: tuple[int, ...], k: int
) -> None:
    """features | rigid_modes: serial."""
    mesh = generate(n=n)
    mesh.points = mesh.points * 3.0 + 100.0
    K = tm.LinearElasticityElementAssembler.from_mesh(mesh)()
    modes = rigid_modes(mesh.points)
    assert modes.shape == (mesh.n_points * mesh.dim, k)
    assert float((K @ modes).abs().max()) < 1e-12
    assert int(torch.linalg.matrix_rank(modes)) == k
    torch.testing.assert_close((modes**2).sum(0), torch.ones(k, dtype=torch.float64))
    # Rotations about the centre are orthogonal to translations.
    across = modes[:, : mesh.dim].T @ modes[:, mesh.dim :]
    torch.testing.assert_close(across, torch.zeros_like(across), atol=1e-12, rtol=0)


def test_points_without_extent_have_translations_only() -> None:
    modes = rigid_modes(torch.ones(1, 3))
    torch.testing.assert_close(modes, torch.eye(3, 6))
    assert rigid_modes(torch.ones(0, 2)).shape == (0, 3)
    torch.testing.assert_close(rigid_modes(torch.ones(4, 1)), torch.full((4, 1), 0.5))


def test_what_is_no_points_is_refused() -> None:
    with pytest.raises(TypeError, match="int64"):
        rigid_modes(torch.ones(3, 2, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"\(3, 4\)"):
        rigid_modes(torch.ones(3, 4))
