"""The page of promises is complete, and names only tests that exist."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

DOCS = Path(__file__).resolve().parents[1] / "docs"


def load(name: str) -> ModuleType:
    if str(DOCS) not in sys.path:
        sys.path.append(str(DOCS))  # one reads the other
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


contracts = load("contracts")
ROWS = list(contracts.rows())


def test_every_promise_has_a_test_or_is_known_to_wait() -> None:
    assert contracts.unshown(ROWS) == []


def test_no_test_names_a_heading_that_is_not_there() -> None:
    assert contracts.strangers(ROWS) == []


def test_the_page_shows_every_row_that_a_search_for_docstrings_finds() -> None:
    page = contracts.page(ROWS)
    for path in (DOCS.parent / "tests").rglob("test_*.py"):
        for line in path.read_text().splitlines():
            text = line.strip().removeprefix('"""').removesuffix('"""')
            if text.startswith(("distributed-api ", "device-mesh ", "known-faults ", "base-api ")):
                row = text.partition(" | ")[2]
                row = row.partition(": ")[2] if text.startswith("known-faults |") else row
                assert row.replace("|", "\\|") in page, (path.name, text)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (
            'def test_a():\n    """distributed-api Ownership | lowest rank: x."""',
            [("distributed-api", "Ownership", "lowest rank: x.")],
        ),
        (
            'def test_a():\n    """known-faults | 22: RCB.\n\n    known-faults 23 | K.\n    """',
            [("known-faults", "22", "RCB."), ("known-faults", "23", "K.")],
        ),
        ('def test_a():\n    """Nothing of the kind."""', []),
        ('def helper():\n    """known-faults | 1: no test."""', []),
    ],
)
def test_docstrings_are_read(
    tmp_path: Path, source: str, expected: list[tuple[str, str, str]]
) -> None:
    folder = tmp_path / "tests"
    folder.mkdir()
    (folder / "test_x.py").write_text(source)
    found = list(contracts.rows(folder))
    assert [(r.contract, r.heading, r.text) for r in found] == expected
    assert {r.test for r in found} <= {"tests/test_x.py::test_a"}


def test_what_is_missing_is_found() -> None:
    without = [row for row in ROWS if (row.contract, row.heading) != ("known-faults", "22")]
    assert ("known-faults", "22", "") in contracts.unshown(without)
    without = [row for row in ROWS if not row.text.startswith("`T`")]
    assert contracts.unshown(without) == [("distributed-api", "DSparseMatrix", "`T`")]
    assert len(contracts.HEADINGS["known-faults"]) == 33
