"""The table of features has all that is public, and is what the tests give."""

import pkgutil
from pathlib import Path
from types import ModuleType

import pytest

import tensormesh
from tests.test_contracts import load

features = load("features")
CELLS = list(features.cells())
PACKAGES = [
    pkgutil.resolve_name(f"tensormesh.{module.name}")
    for module in pkgutil.iter_modules(tensormesh.__path__)
    if module.ispkg
]


def public_names(package: ModuleType) -> set[str]:
    """Functions and classes, but no errors."""
    values = {name: getattr(package, name) for name in package.__all__}
    return {
        name
        for name, value in values.items()
        if callable(value) and not (isinstance(value, type) and issubclass(value, Exception))
    }


@pytest.mark.parametrize("package", [tensormesh, *PACKAGES], ids=lambda p: p.__name__)
def test_every_public_name_has_a_row(package: ModuleType) -> None:
    """Add it to `SECTIONS` of docs/features.py, and a line `features | name: ...` to its test."""
    rows = {row for rows in features.SECTIONS.values() for row in rows}
    assert public_names(package) - rows == set()


def test_every_cell_type_has_a_row() -> None:
    assert set(tensormesh.element_types) == set(features.SECTIONS["Orders of cells"])


def test_every_row_has_a_test_and_no_test_names_another() -> None:
    assert features.empty(CELLS) == []
    assert features.strangers(CELLS) == []


def test_the_page_is_what_the_tests_give() -> None:
    """Run `python docs/features.py` where it is not."""
    assert features.PAGE.read_text() == features.page(CELLS)


def test_docstrings_are_read(tmp_path: Path) -> None:
    folder = tmp_path / "tests"
    folder.mkdir()
    text = "Newton.\n\n    features | newton, method cg: serial, differentiable.\n    "
    (folder / "test_x.py").write_text(f'def test_a():\n    """{text}"""\n')
    found = [(c.row, c.column, c.test) for c in features.cells(folder)]
    where = "tests/test_x.py::test_a"
    columns = ("serial", "differentiable")
    assert found == [(row, c, where) for row in ("newton", "method cg") for c in columns]


def test_what_is_missing_is_found() -> None:
    without = [cell for cell in CELLS if cell.row != "newton"]
    assert features.empty(without) == ["newton"]
    page = features.page(without)
    assert page != features.page(CELLS)
    assert "| `newton` |  |  |  |  |" in page
    assert features.strangers([features.Cell("newtn", "serial", "x")])
    assert features.strangers([features.Cell("newton", "quick", "x")])
