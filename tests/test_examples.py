"""The examples, small: one process and some ranks give the same numbers and readable files.

One is run as a user runs it, the others in processes that live already: to start those of each
takes longer than what they compute.
"""

import re
from pathlib import Path

import numpy as np
import pytest

import tensormesh as tm
from tensormesh.distributed.device_mesh import DeviceMesh
from tests.pictures import inked, n_colours
from tests.programs import launcher, run, script
from tests.pvtu import Pvtu, cells_of, read_pvtu
from tests.rank_pool import RankPool

ROOT = Path(__file__).resolve().parents[1]
# Those of the fixture: an example works on all ranks of its job.
N_RANKS = 4
BRACKET = ROOT / "tests" / "data" / "bracket_p2.msh"


def as_a_user(name: str, n_ranks: int, folder: Path, *options: str) -> str:
    """What an example prints, in processes of its own; run in a new folder under `folder`."""
    here = folder / f"ranks_{n_ranks}"
    here.mkdir()
    return run([*launcher(n_ranks), ROOT / "examples" / name, *options], here, timeout=240.0)


def on_rank(device_mesh: DeviceMesh, name: str, folder: Path, options: tuple[str, ...]) -> str:
    return script(ROOT / "examples" / name, options, folder)


def example(ranks: RankPool | None, name: str, folder: Path, *options: str) -> str:
    """What an example prints, in this process or on ranks that live already; in a new folder."""
    here = folder / f"ranks_{1 if ranks is None else N_RANKS}"
    here.mkdir()
    if ranks is None:
        return script(ROOT / "examples" / name, options, here)
    return "".join(ranks(N_RANKS, on_rank, name, here, options, timeout=240.0))


def number(label: str, printed: str) -> float:
    (found,) = re.findall(rf"^{label}\s+([-+.\de]+)", printed, re.MULTILINE)
    return float(found)


def files(folder: Path, n_ranks: int, name: str, n_parts: int) -> Pvtu:
    """The PVTU of a run, after a look at the other files."""
    output = folder / f"ranks_{n_ranks}" / "output"
    pieces = {f"{name}_{part}.vtu" for part in range(n_parts)}
    assert {path.name for path in output.iterdir()} == {f"{name}.pvtu", f"{name}.png"} | pieces
    assert inked(output / f"{name}.png") > 0.1
    assert n_colours(output / f"{name}.png") > 100
    return read_pvtu(output / f"{name}.pvtu")


def largest_difference(one: Pvtu, other: Pvtu, name: str) -> float:
    a, b = one.nodal(name), other.nodal(name)
    assert a.keys() == b.keys()
    return max(float(np.abs(a[point] - b[point]).max()) for point in a)


@pytest.mark.parametrize(("order", "method"), [(1, "spectral"), (2, "metis")])
def test_poisson_is_the_same_on_three_ranks(order: int, method: str, tmp_path: Path) -> None:
    options = ("--cells", "16", "--order", str(order))
    printed = {
        1: as_a_user("poisson.py", 1, tmp_path, *options),
        3: as_a_user("poisson.py", 3, tmp_path, *options, "--method", method),
    }
    mesh = tm.Mesh.gen_rectangle(n=(16, 16), order=order)
    for n, n_parts in ((1, 2), (3, 3)):
        assert f"{mesh.n_points} unknowns in {n_parts} parts" in printed[n]
    error = number("L2 error", printed[1])
    # Below C h^(order + 1) |u|, in the norm of that order, with C of order one; and not zero.
    assert 1e-6 < error < np.pi ** (order + 1) / 16 ** (order + 1)
    assert number("L2 error", printed[3]) == pytest.approx(error, rel=1e-3)

    alone, three = files(tmp_path, 1, "poisson", 2), files(tmp_path, 3, "poisson", 3)
    assert alone.cells() == three.cells() == cells_of(mesh)
    assert alone.point_arrays == three.point_arrays == {"u": ("Float64", 1)}
    assert largest_difference(alone, three, "u") < 1e-8


def test_bracket_is_the_same_on_ranks(ranks: RankPool, tmp_path: Path) -> None:
    options = ("--mesh", str(BRACKET), "--rtol", "1e-4")
    printed = {
        1: example(None, "bracket.py", tmp_path, *options),
        N_RANKS: example(ranks, "bracket.py", tmp_path, *options),
    }
    for label, rel in (
        ("area of the pins", 1e-12),
        ("work of the load", 1e-6),
        ("largest displacement", 1e-4),
    ):
        assert number(label, printed[N_RANKS]) == pytest.approx(number(label, printed[1]), rel=rel)
    for text in printed.values():
        assert number("relative residual", text) <= 1e-4
        # Two bores of radius 5 through a plate of 8 mm, up to facets that are parabolas.
        assert number("area of the pins", text) == pytest.approx(2 * 2 * np.pi * 5 * 8, rel=1e-4)

    alone, three = files(tmp_path, 1, "bracket", 2), files(tmp_path, N_RANKS, "bracket", N_RANKS)
    assert alone.point_arrays == three.point_arrays == {"displacement": ("Float64", 3)}
    assert alone.cells() == three.cells() == cells_of(tm.Mesh.read(BRACKET))
    largest = number("largest displacement", printed[1])
    assert largest_difference(alone, three, "displacement") < 1e-4 * largest
    norms = [np.linalg.norm(u) for u in three.nodal("displacement").values()]
    assert max(norms) == pytest.approx(number("largest displacement", printed[N_RANKS]), abs=1e-6)


def both(ranks: RankPool, name: str, folder: Path, labels: dict[str, float], *options: str) -> str:
    """What an example prints in one process, after a look at what it prints on ranks.

    The numbers with these labels agree up to relative tolerances.
    """
    alone = example(None, f"{name}.py", folder, *options)
    of_ranks = example(ranks, f"{name}.py", folder, *options)
    for label, rel in labels.items():
        assert number(label, of_ranks) == pytest.approx(number(label, alone), rel=rel)
    return alone


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda p: p.stem)
def test_an_example_begins_and_ends_its_job(path: Path) -> None:
    """As the one does that is run so."""
    text = path.read_text()
    begin = 'dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")'
    assert f'if "RANK" in os.environ:\n    {begin}\n' in text
    assert text.rstrip().endswith("if dist.is_initialized():\n    dist.destroy_process_group()")


def test_hyperelastic_beam_is_the_same_on_ranks(ranks: RankPool, tmp_path: Path) -> None:
    labels = {"lowest displacement": 1e-6, "elastic energy": 1e-6}
    options = ("--cells", "1", "--steps", "2", "--load", "0.002")
    printed = both(ranks, "hyperelastic_beam", tmp_path, labels, *options)
    # In the end, each step has twice the digits of the one before.
    for line in re.findall(r"\|F\| = (.*)", printed):
        before, after = [float(size) for size in line.split()][-3:-1]
        assert after < before**1.5
    alone = files(tmp_path, 1, "hyperelastic_beam", 2)
    two = files(tmp_path, N_RANKS, "hyperelastic_beam", N_RANKS)
    assert alone.point_arrays == two.point_arrays == {"displacement": ("Float64", 3)}
    assert largest_difference(alone, two, "displacement") < 1e-6
    lowest = min(float(u[2]) for u in two.nodal("displacement").values())
    assert lowest == pytest.approx(number("lowest displacement", printed), abs=1e-6)


def test_heat_sink_is_the_same_on_ranks(ranks: RankPool, tmp_path: Path) -> None:
    labels = {"stored": 1e-7, "given off": 1e-7, "hottest": 1e-6, "coolest": 1e-6}
    options = ("--mesh", str(BRACKET), "--steps", "2", "--dt", "300")
    printed = both(ranks, "heat_sink", tmp_path, labels, *options)
    parts = (number(label, printed) for label in ("stored", "given off"))
    assert sum(parts) == pytest.approx(10.0 * 600, rel=1e-6)
    assert 0 < number("coolest", printed) < number("hottest", printed)
    alone, two = files(tmp_path, 1, "heat_sink", 2), files(tmp_path, N_RANKS, "heat_sink", N_RANKS)
    assert alone.cells() == two.cells() == cells_of(tm.Mesh.read(BRACKET))
    assert largest_difference(alone, two, "temperature") < 1e-5


def test_elastodynamics_is_the_same_on_ranks(ranks: RankPool, tmp_path: Path) -> None:
    labels = {"deflection at first": 1e-6, "period": 1e-6, "energy": 1e-6}
    printed = both(ranks, "elastodynamics", tmp_path, labels, "--cells", "1", "--steps", "20")
    # A slender beam: beam theory is off by the square of its slenderness, and so is the step.
    theory = number("of beam theory", printed)
    assert number("period", printed) == pytest.approx(theory, rel=0.02)
    assert number("largest drift of it", printed) < 1e-8
    alone, two = (
        files(tmp_path, 1, "elastodynamics", 2),
        files(tmp_path, N_RANKS, "elastodynamics", N_RANKS),
    )
    assert largest_difference(alone, two, "displacement") < 1e-6


def test_stokes_is_the_same_on_ranks(ranks: RankPool, tmp_path: Path) -> None:
    labels = {"coming in": 1e-7, "going out": 1e-7, "fastest": 1e-6, "pressure drop": 1e-6}
    printed = both(ranks, "stokes", tmp_path, labels, "--cells", "6")
    assert number("coming in", printed) == pytest.approx(2 / 3, rel=1e-8)  # of a parabola
    assert number("going out", printed) == pytest.approx(2 / 3, rel=1e-7)
    assert number("fastest", printed) == pytest.approx(2.0, rel=0.01)
    # Parabolas in both parts, 8 + 2 * 64, and what the step takes.
    assert 136 < number("pressure drop", printed) < 160
    alone, two = files(tmp_path, 1, "stokes", 2), files(tmp_path, N_RANKS, "stokes", N_RANKS)
    assert alone.point_arrays == {"velocity": ("Float64", 3), "pressure": ("Float64", 1)}
    assert largest_difference(alone, two, "velocity") < 1e-6
    assert largest_difference(alone, two, "pressure") < 1e-4


def test_modal_analysis_is_the_same_on_ranks(ranks: RankPool, tmp_path: Path) -> None:
    labels = {"mode 1": 1e-6, "mode 2": 1e-6, "mode 3": 1e-6}
    printed = both(ranks, "modal_analysis", tmp_path, labels, "--cells", "1", "--modes", "3")
    assert number("mode 1", printed) == pytest.approx(number("slender beam", printed), rel=0.03)
    picture = tmp_path / "ranks_1" / "output" / "modal_analysis.png"
    assert inked(picture) > 0.03  # a slender beam
    assert n_colours(picture) > 100


def test_helmholtz_is_the_same_on_ranks(ranks: RankPool, tmp_path: Path) -> None:
    labels = {"error of the plane wave": 1e-5, "power given": 1e-7, "loudest": 1e-7}
    printed = both(ranks, "helmholtz", tmp_path, labels, "--cells", "24", "--waves", "3")
    # A plane wave has amplitude 1 everywhere; the lens collects it where rays meet on the rim, up
    # to a fraction of the wavelength, 1/3 for a radius of 0.3.
    assert number("error of the plane wave", printed) < 0.01
    assert number("power taken", printed) == pytest.approx(number("power given", printed), rel=1e-8)
    assert number("loudest", printed) > 2.0
    assert number("on the rim at", printed) == pytest.approx(1.0, abs=0.15)
    assert number("in direction", printed) == pytest.approx(0.3, abs=0.1)
    alone, two = files(tmp_path, 1, "helmholtz", 2), files(tmp_path, N_RANKS, "helmholtz", N_RANKS)
    assert alone.point_arrays == {"real": ("Float64", 1), "imaginary": ("Float64", 1)}
    for name in alone.point_arrays:
        assert largest_difference(alone, two, name) < 1e-7


def test_inverse_is_the_same_on_ranks(ranks: RankPool, tmp_path: Path) -> None:
    options = ("--cells", "8", "--spacing", "2", "--iterations", "12")
    printed = {
        1: example(None, "inverse.py", tmp_path, *options),
        N_RANKS: example(ranks, "inverse.py", tmp_path, *options),
    }
    for label in ("first loss", "last loss", "highest k", "error of m"):
        assert number(label, printed[N_RANKS]) == pytest.approx(number(label, printed[1]), rel=1e-6)
    assert number("last loss", printed[1]) < 1e-2 * number("first loss", printed[1])
    assert number("error of m", printed[1]) < 0.7  # 1 where nothing is found
    alone, three = files(tmp_path, 1, "inverse", 2), files(tmp_path, N_RANKS, "inverse", N_RANKS)
    assert largest_difference(alone, three, "m") < 1e-6


def test_periodic_cell_is_the_same_on_ranks(ranks: RankPool, tmp_path: Path) -> None:
    labels = {"fibres": 1e-9, "slope": 1e-8, "share of fibres": 1e-12}
    printed = both(ranks, "periodic_cell", tmp_path, labels, "--cells", "12", "--conductivity", "4")
    share = number("share of fibres", printed)
    assert share == pytest.approx(np.pi * 0.35**2, rel=0.1)
    assert number("layers, off by", printed) < 1e-10
    # Maxwell's formula for round fibres, which is the lower bound; neighbours help a little.
    maxwell = 1 + 2 * share / (5 / 3 - share)
    assert number("lower bound", printed) == pytest.approx(maxwell, rel=1e-8)
    assert maxwell < number("fibres", printed) < 1.05 * maxwell
    assert number("slope", printed) == pytest.approx(number("by a difference", printed), rel=1e-6)
    alone, two = (
        files(tmp_path, 1, "periodic_cell", 2),
        files(tmp_path, N_RANKS, "periodic_cell", N_RANKS),
    )
    assert alone.cells() == two.cells()
    assert largest_difference(alone, two, "corrector") < 1e-9
