"""Rules of the code base that no linter knows, read from the source."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterable
from importlib import import_module
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from types import ModuleType

import pytest

import tensormesh

ROOT = Path(__file__).resolve().parents[1]
MODULES = sorted((ROOT / "tensormesh").rglob("*.py"))
PACKAGES = sorted(
    ".".join(path.parent.relative_to(ROOT).parts) for path in MODULES if path.name == "__init__.py"
)
PARALLEL = ("torch.distributed", "tensormesh.distributed")
DISTRIBUTIONS = {  # where the names differ
    "basix": "fenics-basix",
    "mpl_toolkits": "matplotlib",
    "torch_sla": "torch-sla",
}


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def is_serial(path: Path) -> bool:
    """Everything is, except the distributed folder and the list of public names."""
    return path.relative_to(ROOT).parts[1] not in ("distributed", "__init__.py")


def names_used(source: str, package: str) -> set[str]:
    """Dotted names that a module of `package` imports, or reaches as attributes."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")[: len(package.split(".")) + 1 - node.level]
            base = [*(parents if node.level else []), *([node.module] if node.module else [])]
            found |= {".".join([*base, alias.name]) for alias in node.names}
        elif isinstance(node, ast.Attribute):
            found.add(ast.unparse(node))
    return found


def parallel_names(source: str, package: str) -> set[str]:
    return {
        name
        for name in names_used(source, package)
        if any(name == p or name.startswith(p + ".") for p in PARALLEL)
    }


@pytest.mark.parametrize(
    "source",
    [
        "import torch.distributed",
        "import torch.distributed as dist",
        "from torch import distributed",
        "from torch.distributed import all_reduce",
        "from ..distributed import halo",
        "from .. import distributed",
        "import torch\ntorch.distributed.barrier()",
        "def late():\n    from tensormesh.distributed.halo import Halo",
    ],
)
def test_no_way_to_reach_a_rank_is_overlooked(source: str) -> None:
    assert parallel_names(source, "tensormesh.mesh")


def test_serial_folders_are_all_read() -> None:
    folders = {path.relative_to(ROOT).parts[1] for path in MODULES if is_serial(path)}
    assert folders >= {"mesh", "element", "assemble", "sparse", "operator"}


@pytest.mark.parametrize("path", list(filter(is_serial, MODULES)), ids=name_of)
def test_serial_code_knows_no_ranks(path: Path) -> None:
    package = ".".join(path.parent.relative_to(ROOT).parts)
    assert not parallel_names(path.read_text(), package)


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_package_raises_and_logs_but_never_asserts_or_prints(path: Path) -> None:
    found = [
        f"line {node.lineno}: {ast.unparse(node)}"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Assert)
        or (isinstance(node, ast.Call) and ast.unparse(node.func) == "print")
    ]
    assert not found


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_first_lines_are_whole_sentences_to_the_reference(path: Path) -> None:
    """A list of names cuts first lines at a full stop and a space, be it inside a literal."""
    documented = ast.Module | ast.ClassDef | ast.FunctionDef
    lines = [
        (ast.get_docstring(node) or "").split("\n")[0]
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, documented)
    ]
    assert [line for line in lines if re.search(r"``[^`]*[.!?] [^`]*``", line)] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_names_in_all_exist_once(package: str) -> None:
    module = import_module(package)
    listed = getattr(module, "__all__", [])
    assert len(listed) == len(set(listed))
    assert [name for name in listed if not hasattr(module, name)] == []


def test_all_is_complete() -> None:
    public = {
        name
        for name, value in vars(tensormesh).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    }
    assert public <= set(tensormesh.__all__)
    assert public


def test_version_is_that_of_the_installed_distribution() -> None:
    assert tensormesh.__version__ == version("tensormesh-sharded")


def test_what_is_imported_is_declared_and_what_is_required_is_imported() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    def distributions(requirements: Iterable[str]) -> set[str]:
        return {re.split(r"[\[<>=!~ ]", line)[0] for line in requirements}

    required = distributions(project["dependencies"])
    extras = distributions(chain.from_iterable(project["optional-dependencies"].values()))
    tops = {
        name.split(".")[0]
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text()))
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module]
            if isinstance(node, ast.ImportFrom) and node.module and not node.level
            else []
        )
    }
    imported = {DISTRIBUTIONS.get(top, top) for top in tops - sys.stdlib_module_names}
    assert imported - {"tensormesh"} <= required | extras
    assert required <= imported


def test_tests_mirror_the_package() -> None:
    packages = {
        folder.relative_to(ROOT / "tensormesh").as_posix()
        for folder in (ROOT / "tensormesh").rglob("*")
        if folder.is_dir()
    }
    folders = {
        path.parent.relative_to(ROOT / "tests").as_posix()
        for path in (ROOT / "tests").rglob("test_*.py")
    }
    assert folders - {"."} <= packages | {"examples", "benchmarks", "data"}
