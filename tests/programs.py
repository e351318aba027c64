"""Programs run as a user runs them: in a process of their own, or under torch's launcher."""

import contextlib
import io
import os
import runpy
import subprocess
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from unittest import mock

import torch.distributed as dist

LAUNCHER = ("TORCHELASTIC_", "RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "GROUP_", "ROLE_")


def run(command: Sequence[str | Path], folder: Path, timeout: float = 120.0) -> str:
    """Standard output of a command run in `folder`; a failure shows what it said."""
    # A launcher's variables must not reach the child, or it would take itself for a rank.
    environment = {k: v for k, v in os.environ.items() if not k.startswith(LAUNCHER)}
    environment["OMP_NUM_THREADS"] = "1"
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=timeout
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def launcher(n_ranks: int) -> list[str]:
    """Start of a command that runs a script in one process, or on ranks of this machine."""
    if n_ranks == 1:
        return [sys.executable]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    return [*torchrun, "--nproc-per-node", str(n_ranks)]


def script(path: Path, options: Sequence[str], folder: Path) -> str:
    """What a script prints that is run in this process, in `folder`, and leaves its job alive."""
    printed, before = io.StringIO(), Path.cwd()
    os.chdir(folder)
    try:
        with (
            contextlib.redirect_stdout(printed),
            mock.patch.object(sys, "argv", [str(path), *options]),
            mock.patch.object(dist, "destroy_process_group"),
            warnings.catch_warnings(),
        ):
            runpy.run_path(str(path), run_name="__main__")
    finally:
        os.chdir(before)
    return printed.getvalue()
