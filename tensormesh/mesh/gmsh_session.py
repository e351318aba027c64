"""gmsh as a library (extra ``gmsh``): one model at a time, nothing on disk."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

import numpy as np
import torch
from torch import Tensor

from tensormesh.mesh.gmsh_order import gmsh_to_file, type_name


@contextmanager
def gmsh_model(options: dict[str, float], verbose: bool = False) -> Iterator[ModuleType]:
    """Give gmsh with an empty model, and take the model away afterwards.

    A session that runs already is used, and left with its own models and options.

    Parameters
    ----------
    options
        Numbers of gmsh, for instance ``{"Mesh.MeshSizeMax": 0.1}``.
    verbose
        Let gmsh write to the terminal.

    Raises
    ------
    ImportError
        If gmsh or a library that it needs is not installed.
    """
    gmsh = _gmsh()
    ours = not gmsh.isInitialized()
    if ours:
        with _kept_signals():
            gmsh.initialize(readConfigFiles=False, interruptible=False)
    options = options | {"General.Terminal": float(verbose), "General.NumThreads": 1}
    before = {name: gmsh.option.getNumber(name) for name in options}
    previous = gmsh.model.getCurrent()
    try:
        for name, number in options.items():
            gmsh.option.setNumber(name, number)
        gmsh.model.add("tensormesh")
        try:
            yield gmsh
        finally:
            gmsh.model.remove()
    finally:
        if ours:
            gmsh.finalize()
        else:
            gmsh.model.setCurrent(previous)
            for name, number in before.items():
                gmsh.option.setNumber(name, number)


def model_cells(gmsh: ModuleType, dim: int) -> tuple[Tensor, dict[str, Tensor]]:
    """Nodes and cells of dimension `dim` of the mesh of the current model.

    Returns
    -------
    points, cells
        (n, dim), float64, of all nodes, and {type: (E, B)} in file node order.
    """
    tags, coordinates, _ = gmsh.model.mesh.getNodes()
    points = torch.from_numpy(coordinates.reshape(-1, 3)[:, :dim].copy())
    number = np.zeros(int(tags.max()) + 1, np.int64)
    number[tags.astype(np.int64)] = np.arange(len(tags))
    cells = {}
    for kind, _, nodes in zip(*gmsh.model.mesh.getElements(dim), strict=True):
        name = type_name(int(kind))
        permutation = gmsh_to_file(name)
        conn = number[nodes.astype(np.int64)].reshape(-1, len(permutation))[:, permutation]
        cells[name] = torch.from_numpy(conn)
    return points, cells


@contextmanager
def _kept_signals() -> Iterator[None]:
    """Put back the handlers of Python, which gmsh takes away from the process.

    Without that of SIGPIPE, a write to a process that has ended would end this one without a word.
    """
    names = [name for name in ("SIGPIPE", "SIGINT") if hasattr(signal, name)]
    handlers = {name: signal.getsignal(getattr(signal, name)) for name in names}
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():  # others may set none
            for name, handler in handlers.items():
                if handler is not None:
                    signal.signal(getattr(signal, name), handler)


def _gmsh() -> ModuleType:
    try:
        import gmsh
    except (ImportError, OSError) as error:  # OSError: a library of the system is missing.
        raise ImportError(
            'curved meshes need gmsh: pip install "tensormesh-sharded[gmsh]"; '
            f"importing it failed with: {error}"
        ) from error
    return gmsh
