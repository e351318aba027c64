"""The benchmarks run, agree with another program, and their page is what the results give."""

import json
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.programs import run

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"
PAGE = BENCHMARKS.parent / "docs" / "benchmarks.md"


def measured(folder: Path, *arguments: str) -> dict[str, Any]:
    """Results of `assembly.py` on small meshes, one process a program."""
    script = [sys.executable, str(BENCHMARKS / "assembly.py"), "--small", "--runs", "1"]
    run([*script, "--repeat", "2", "--output", str(folder), *arguments], folder)
    content: dict[str, Any] = json.loads((folder / "assembly.json").read_text())
    return content


@pytest.mark.skipif(find_spec("skfem") is None, reason="scikit-fem is not installed")
def test_we_agree_with_scikit_fem_in_every_phase(tmp_path: Path) -> None:
    cases = ["P2-elasticity-cell", "Q1-load"]
    content = measured(tmp_path, "--peers", "scikit-fem", "--ranks", "1", "--cases", *cases)
    assert [entry["name"] for entry in content["cases"]] == cases
    for entry in content["cases"]:
        assert entry["results"].keys() == {"tensormesh", "scikit-fem"}
        assert entry["results"]["tensormesh"]["facts"].keys() == {"first", "coefficient", "points"}
        assert entry["disagreement"] < 1e-10
    assert "not asked for" in content["skipped"].values()


def test_two_ranks_sum_to_the_same_matrix(tmp_path: Path) -> None:
    content = measured(tmp_path, "--peers", "none", "--cases", "P1-laplace-cell")
    one, two = (entry["results"]["tensormesh"] for entry in content["cases"])
    assert (one["ranks"], two["ranks"]) == (1, 2)
    assert one["entries"] == two["entries"]
    assert two["bytes_sent"] > 0
    for phase, facts in one["facts"].items():
        for fact in ("size", "norm", "energy"):
            assert two["facts"][phase][fact] == pytest.approx(facts[fact], rel=1e-12)


def test_a_wrong_matrix_is_told(tmp_path: Path) -> None:
    program = (
        f"import sys; sys.path.insert(0, {str(BENCHMARKS)!r})\n"
        "from compare import disagreement\n"
        "right = {'first': {'size': 8, 'sum': 0.0, 'norm': 2.0, 'energy': 3.0}}\n"
        "for fact, wrong in (('sum', 2e-9), ('norm', 2 + 2e-9), ('energy', 3 + 3e-9)):\n"
        "    other = {'first': {**right['first'], fact: wrong}}\n"
        "    print(disagreement({'a': {'facts': right}, 'b': {'facts': other}}))\n"
    )
    found = [float(line) for line in run([sys.executable, "-c", program], tmp_path).split()]
    assert found == pytest.approx([1e-9] * 3, rel=1e-6)


def test_profile_shows_the_operators_of_a_call(tmp_path: Path) -> None:
    script = [sys.executable, str(BENCHMARKS / "profile_assembly.py")]
    output = run([*script, "P1", "laplace-cell", "3", "3", "3", "--rows", "99"], tmp_path)
    assert "aten::index_add_" in output


def test_page_is_what_the_results_give(tmp_path: Path) -> None:
    assert PAGE.exists() == (BENCHMARKS / "results" / "assembly.json").exists()
    if PAGE.exists():
        run([sys.executable, str(BENCHMARKS / "report.py"), "--check"], tmp_path)
