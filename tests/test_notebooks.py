"""Every notebook runs from top to bottom, stops what it starts, and is committed without output."""

import os
import uuid
from pathlib import Path

import nbformat
import psutil
import pytest
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).resolve().parents[1] / "notebooks").glob("*.ipynb"))
MARK = "TENSORMESH_NOTEBOOK"

notebooks = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def processes_marked(mark: str) -> list[psutil.Process]:
    """Processes, of whatever parent, that have `mark` in their environment."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and process.environ().get(MARK) == mark:
                found.append(process)
        except psutil.Error:  # another user's, or gone in the meantime
            pass
    return found


def test_there_are_notebooks() -> None:
    assert NOTEBOOKS


@notebooks
def test_notebook_is_committed_without_output(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert code
    assert [cell.source for cell in code if cell.outputs or cell.execution_count] == []


@notebooks
def test_notebook_runs_and_leaves_no_process(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = uuid.uuid4().hex
    monkeypatch.setenv(MARK, mark)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    notebook = nbformat.read(path, as_version=4)
    resources = {"metadata": {"path": str(tmp_path)}}
    client = NotebookClient(notebook, timeout=120, kernel_name="python3", resources=resources)
    try:
        client.execute()
        _, alive = psutil.wait_procs(processes_marked(mark), timeout=10)
        assert [process.cmdline() for process in alive] == []
    finally:
        for process in processes_marked(mark):
            process.kill()
    pictures = [
        output
        for cell in notebook.cells
        if cell.cell_type == "code"
        for output in cell.outputs
        if "image/png" in output.get("data", {})
    ]
    assert pictures
    assert {path.name for path in tmp_path.iterdir()} <= {"ipython"}
