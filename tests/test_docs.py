"""What the pages and docstrings show runs: no example is only for the eye."""

import doctest
import pkgutil
import re
import sys
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import tensormesh
import tensormesh.dataset
import tensormesh.distributed
import tensormesh.nn
import tensormesh.visualization
from tests.programs import launcher, run

ROOT = Path(__file__).resolve().parents[1]
PAGES = ["README.md", "docs/index.md"]
BLOCK = re.compile(r"^```python[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FINDER = doctest.DocTestFinder(exclude_empty=True)
EXAMPLES = [
    example
    for module in pkgutil.walk_packages(tensormesh.__path__, "tensormesh.")
    for example in FINDER.find(import_module(module.name))
    if example.examples
]


@dataclass(frozen=True)
class Block:
    """A program in a page, and the line where it starts."""

    page: str
    line: int
    code: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks_of(page: str) -> list[Block]:
    text = (ROOT / page).read_text()
    return [
        Block(page, text.count("\n", 0, match.start(1)) + 1, match[1])
        for match in BLOCK.finditer(text)
    ]


BLOCKS = [block for page in PAGES for block in blocks_of(page)]
PARALLEL_BLOCKS = [block for block in BLOCKS if "init_process_group" in block.code]


def largest_value(output: str) -> list[float]:
    return [float(number) for number in re.findall(r"largest value ([\d.]+)", output)]


def torsion_maximum(terms: int = 60) -> float:
    """Largest value of u where -Laplace u = 1 on the unit square, 0 on its boundary: a series."""
    odd = range(1, 2 * terms, 2)
    signs = [(-1) ** ((m - 1) // 2 + (n - 1) // 2) for m in odd for n in odd]
    values = [16 / (3.141592653589793**4 * m * n * (m * m + n * n)) for m in odd for n in odd]
    return sum(sign * value for sign, value in zip(signs, values, strict=True))


@pytest.mark.parametrize("page", PAGES)
def test_page_has_a_program_and_no_block_is_overlooked(page: str) -> None:
    fences = re.findall(r"^\s*```\s*python", (ROOT / page).read_text(), re.MULTILINE)
    assert len(blocks_of(page)) == len(fences) > 0


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_block_runs_when_pasted(block: Block, tmp_path: Path) -> None:
    (tmp_path / "pasted.py").write_text(block.code)
    output = run([sys.executable, "-W", "error", "pasted.py"], tmp_path)
    assert output.strip()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pasted.py"]


@pytest.mark.parametrize("block", PARALLEL_BLOCKS, ids=str)
def test_block_runs_on_two_ranks(block: Block, tmp_path: Path) -> None:
    (tmp_path / "pasted.py").write_text(block.code)
    alone = run([*launcher(1), "pasted.py"], tmp_path).strip()
    both = run([*launcher(2), "pasted.py"], tmp_path)
    assert alone
    assert both.count(alone) == 2  # where a line of one rank ends, that of the other may begin
    assert both.replace(alone, "").strip() == ""


@pytest.mark.parametrize("block", PARALLEL_BLOCKS, ids=str)
def test_block_ends_its_process_group(block: Block) -> None:
    """Without that, torch aborts some of the runs at exit."""
    *_, last = block.code.strip().splitlines()
    assert last.partition("#")[0].strip() == "torch.distributed.destroy_process_group()"


def test_readme_shows_the_right_number(tmp_path: Path) -> None:
    (tmp_path / "pasted.py").write_text(blocks_of("README.md")[0].code)
    (value,) = largest_value(run([*launcher(1), "pasted.py"], tmp_path))
    rounding, interpolation = 0.0005, 0.05**2 / 8  # three digits; h^2 / 8 |D^2 u|
    assert value == pytest.approx(torsion_maximum(), abs=rounding + interpolation)


def listed_names() -> list[str]:
    """Dotted names in the reference, each with the module that it is looked up in."""
    names, module = [], ""
    for line in (ROOT / "docs" / "reference.md").read_text().splitlines():
        if line.startswith(".. currentmodule:: "):
            module = line.split()[-1]
        elif entry := re.fullmatch(r"(?:   |\.\. py:data:: )([A-Za-z_][\w.]*)", line):
            names.append(f"{module}.{entry[1]}")
    return names


@pytest.mark.parametrize(
    "package",
    [
        tensormesh,
        tensormesh.distributed,
        tensormesh.dataset,
        tensormesh.nn,
        tensormesh.visualization,
    ],
    ids=lambda package: package.__name__,
)
def test_reference_lists_every_public_name(package: ModuleType) -> None:
    listed = {id(pkgutil.resolve_name(name)) for name in listed_names()}
    public = {name: getattr(package, name) for name in package.__all__}
    missing = [
        name
        for name, value in public.items()
        if not isinstance(value, str | ModuleType) and id(value) not in listed
    ]
    assert missing == []


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: e.name)
def test_docstring_example_gives_what_it_shows(example: doctest.DocTest) -> None:
    report: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    assert runner.run(example, out=report.append).failed == 0, "".join(report)
