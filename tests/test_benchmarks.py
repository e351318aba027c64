"""The benchmarks run, agree with another program, and their page is what the results give."""

import json
import sys
from importlib.util import find_spec
from pathlib import Path
from subprocess import run as start
from typing import Any

import pytest

from tests.programs import run

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"
PAGE = BENCHMARKS.parent / "docs" / "benchmarks.md"


def script(name: str, *arguments: str | Path) -> list[str]:
    return [sys.executable, str(BENCHMARKS / name), *map(str, arguments)]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the results of a small mesh: on one rank beside scikit-fem, and on two."""
    folder = tmp_path_factory.mktemp("results")
    arguments = ["--small", "--runs", "1", "--repeat", "2", "--output", folder]
    chosen = ["--cases", "P1-elasticity-cell", "--peers", "scikit-fem"]
    run(script("assembly.py", *arguments, *chosen), folder)
    return folder


@pytest.fixture
def entries(results: Path) -> list[dict[str, Any]]:
    content = json.loads((results / "assembly.json").read_text())
    found: list[dict[str, Any]] = content["cases"]
    return found


@pytest.mark.skipif(find_spec("skfem") is None, reason="scikit-fem is not installed")
def test_we_agree_with_scikit_fem_in_every_phase(entries: list[dict[str, Any]]) -> None:
    compared = entries[0]["results"]
    assert compared.keys() == {"tensormesh", "scikit-fem"}
    ours, theirs = (compared[name]["facts"] for name in ("tensormesh", "scikit-fem"))
    assert ours.keys() == theirs.keys() == {"first", "coefficient", "points"}
    for phase, facts in theirs.items():
        assert ours[phase]["norm"] == pytest.approx(facts["norm"], rel=1e-12)
        assert ours[phase]["energy"] == pytest.approx(facts["energy"], rel=1e-12)
    assert entries[0]["disagreement"] < 1e-10
    assert len({facts["norm"] for facts in theirs.values()}) == 3


def test_two_ranks_make_the_same_matrix(entries: list[dict[str, Any]]) -> None:
    one, two = (entry["results"]["tensormesh"] for entry in entries)
    assert (one["ranks"], two["ranks"]) == (1, 2)
    assert one["entries"] == two["entries"]
    assert two["bytes_sent"] > 0
    for phase, facts in one["facts"].items():
        for fact in ("size", "norm", "energy"):
            assert two["facts"][phase][fact] == pytest.approx(facts[fact], rel=1e-12)


@pytest.mark.parametrize(
    ("total", "fact", "wrong"),
    [
        (0.0, "sum", 2e-9),  # of a stiffness matrix: seen against the norm
        (5.0, "sum", 5 + 5e-9),
        (0.0, "norm", 2 + 2e-9),
        (0.0, "energy", 3 + 3e-9),
    ],
)
def test_a_wrong_matrix_is_told(total: float, fact: str, wrong: float, tmp_path: Path) -> None:
    right = {"size": 8, "sum": total, "norm": 2.0, "energy": 3.0}
    both = {"a": {"facts": {"first": right}}, "b": {"facts": {"first": {**right, fact: wrong}}}}
    program = (
        f"import sys; sys.path.insert(0, {str(BENCHMARKS)!r})\n"
        f"from compare import disagreement\nprint(disagreement({both!r}))\n"
    )
    found = float(run([sys.executable, "-c", program], tmp_path))
    assert found == pytest.approx(1e-9, rel=1e-6)


def test_page_that_is_out_of_date_is_told(results: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    report = script("report.py", "--results", results, "--page", page)
    run(report, tmp_path)
    assert "P1-elasticity-cell" in page.read_text()
    run([*report, "--check"], tmp_path)
    page.write_text(page.read_text().replace("750", "751"))
    assert start([*report, "--check"], check=False).returncode == 1


def test_page_in_the_docs_is_what_the_results_give(tmp_path: Path) -> None:
    assert PAGE.exists() == (BENCHMARKS / "results" / "assembly.json").exists()
    if PAGE.exists():
        run(script("report.py", "--check"), tmp_path)


def test_profile_shows_the_operators_of_a_call(tmp_path: Path) -> None:
    size = ["3", "3", "3"]
    output = run(
        script("profile_assembly.py", "P1", "laplace-cell", *size, "--rows", "99"), tmp_path
    )
    assert "aten::index_add_" in output


def test_solve_agrees_with_petsc(tmp_path: Path) -> None:
    python = "/usr/bin/python3"
    found = (
        Path(python).exists()
        and not start([python, "-c", "import petsc4py"], check=False).returncode
    )
    if not found:
        pytest.skip("PETSc for the system's Python is not installed")
    options = ["--small", "--runs", "1", "--repeat", "1", "--output", tmp_path]
    run(script("solve.py", *options), tmp_path)
    rows = json.loads((tmp_path / "solve.json").read_text())["cases"]
    assert {row["program"] for row in rows} == {"tensormesh", "PETSc"}
    for ranks in (1, 2):
        ours, theirs = (
            row for row in rows if row["method"] == "cg-jacobi" and row["ranks"] == ranks
        )
        assert ours["iterations"] == pytest.approx(theirs["iterations"], abs=1)
