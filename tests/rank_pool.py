"""Live ranks for tests: processes that stay in one gloo job and run functions sent to them."""

import faulthandler
import multiprocessing
import os
import pickle
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from tensormesh.distributed.device_mesh import DeviceMesh

ROOT = str(Path(__file__).resolve().parents[1])
JOB_TIMEOUT = timedelta(seconds=120)  # of a collective, longer than a call's deadline
START_TIMEOUT = 180.0
GRACE = 3.0  # seconds that ranks get to finish after one of them failed


class RankError(Exception):
    """A call failed on some rank; `reports` has a traceback or a reason per failing rank."""

    def __init__(self, reports: dict[int, str]) -> None:
        self.reports = reports
        super().__init__("\n".join(f"--- rank {r} ---\n{reports[r]}" for r in sorted(reports)))


class RankPool:
    """Processes ``0 .. size-1`` in one gloo job; started by the first call.

    ``pool(n, fn, *args)`` runs ``fn(device_mesh, *args)`` on ranks ``0 .. n-1``, where
    ``device_mesh`` is a 1-D sub-mesh over just them: code that reaches for the default group
    while ``n < size`` hangs and is reported. `fn` may make further groups only when
    ``n == size``, since making groups needs the whole world.

    Parameters
    ----------
    size
        Number of processes.
    folder
        Where hanging ranks write their stacks.
    """

    def __init__(self, size: int, folder: Path) -> None:
        self.size = size
        self.folder = folder
        self._workers: list[_Worker] = []
        self._store: dist.TCPStore | None = None

    def __call__(
        self, n: int, fn: Callable[..., Any], *args: Any, timeout: float = 60.0
    ) -> list[Any]:
        """Values of ``fn(device_mesh, *args)`` in rank order.

        Parameters
        ----------
        n
            Number of ranks that run it, 1 to `size`.
        fn
            A function of the top level of a module (ranks import it by name).
        args
            Anything that pickles; each rank gets its own copy.
        timeout
            Seconds until ranks that have not answered are called hanging.

        Raises
        ------
        TypeError
            If `fn` is not of module level, or something does not pickle.
        ValueError
            If `n` is not in 1 to `size`.
        RankError
            If a rank raises, hangs, dies, or returns what does not pickle.
        """
        __tracebackhide__ = True
        if not 1 <= n <= self.size:
            raise ValueError(f"n = {n}: this pool runs 1 to {self.size} ranks")
        job = _pack(n, fn, args)
        if not self._workers:
            self.start()
        try:
            answers, reports = self._run(job, n, timeout)
        except BaseException:  # for instance Ctrl-C: who knows where the ranks are now
            self.stop(patience=0.0)
            raise
        if reports:
            if not self._in_step(n, answers):
                self.stop(patience=0.0)
            raise RankError(reports)
        return [answers[rank] for rank in range(n)]

    def start(self) -> None:
        """Start the processes and wait until all have joined the job."""
        self._store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([__name__])  # imports torch once instead of `size` times
        for rank in range(self.size):
            stack_file = self.folder / f"stack_{os.getpid()}_{rank}.txt"
            ours, theirs = context.Pipe()
            process = context.Process(
                target=_serve,
                args=(rank, self.size, self._store.port, theirs, stack_file),
                daemon=True,
            )
            process.start()
            theirs.close()
            self._workers.append(_Worker(rank, process, ours, stack_file))
        _, reports = self._collect(self._workers, START_TIMEOUT)
        if reports:
            self.stop(patience=0.0)
            raise RankError(reports)

    def stop(self, patience: float = 5.0) -> None:
        """End the processes, by force after `patience` seconds."""
        for worker in self._workers:
            worker.try_send(b"")
        end = time.monotonic() + patience
        for worker in self._workers:
            worker.process.join(max(0.0, end - time.monotonic()))
            worker.process.kill()
            worker.process.join()
            worker.pipe.close()
        self._workers, self._store = [], None

    def _run(self, job: bytes, n: int, timeout: float) -> tuple[dict[int, Any], dict[int, str]]:
        workers = self._workers[:n]
        for worker in workers:
            worker.try_send(job)
        return self._collect(workers, timeout)

    def _collect(
        self, workers: "list[_Worker]", timeout: float
    ) -> tuple[dict[int, Any], dict[int, str]]:
        """Answers and failure reports of all workers; after a failure the others get `GRACE`."""
        answers: dict[int, Any] = {}
        reports: dict[int, str] = {}
        end = time.monotonic() + timeout
        waiting = {worker.pipe: worker for worker in workers}
        while waiting and (ready := wait(list(waiting), max(0.0, end - time.monotonic()))):
            for pipe in ready:
                worker = waiting.pop(pipe)  # type: ignore[call-overload]
                value, error = worker.receive()
                if error is None:
                    answers[worker.rank] = value
                else:
                    reports[worker.rank] = error
                    end = min(end, time.monotonic() + GRACE)
        for worker in waiting.values():
            reports[worker.rank] = f"no answer; it is in\n{worker.stack()}"
        return answers, reports

    def _in_step(self, n: int, answers: dict[int, Any]) -> bool:
        """Whether all ranks are free again and their collectives still match."""
        if any(worker.busy for worker in self._workers):
            return False
        sums, reports = self._run(_pack(n, _sum_of_ones, ()), n, GRACE)
        return not reports and all(value == n for value in sums.values())


@dataclass
class _Worker:
    """Our end of one process."""

    rank: int
    process: BaseProcess
    pipe: Connection
    stack_file: Path
    busy: bool = field(default=True)  # owes an answer

    def try_send(self, message: bytes) -> None:
        """Send; a dead process is noticed when its answer is read."""
        self.busy = True
        try:
            self.pipe.send_bytes(message)
        except (BrokenPipeError, ConnectionResetError):
            pass

    def receive(self) -> tuple[Any, str | None]:
        """Value and error of a process that has answered or died."""
        try:
            value, error = pickle.loads(self.pipe.recv_bytes())
        except (EOFError, ConnectionResetError):
            self.process.join(GRACE)
            return None, f"the process died with exit code {self.process.exitcode}"
        self.busy = False
        try:
            return (pickle.loads(value) if error is None else None), error
        except Exception:
            return None, f"its result does not unpickle here:\n{traceback.format_exc()}"

    def stack(self) -> str:
        """Python stack of the running process."""
        before = self.stack_file.stat().st_size if self.stack_file.exists() else 0
        try:
            os.kill(self.process.pid or 0, signal.SIGUSR1)
        except ProcessLookupError:
            return "a process that is gone"
        end = time.monotonic() + GRACE
        while time.monotonic() < end:
            time.sleep(0.05)
            if self.stack_file.exists() and self.stack_file.stat().st_size > before:
                time.sleep(0.05)  # the rest of the dump
                return self.stack_file.read_bytes()[before:].decode(errors="replace")
        return "an unknown place: it did not write its stack"


def _pack(n: int, fn: Callable[..., Any], args: tuple[Any, ...]) -> bytes:
    """Pickle a job, or say what is wrong with it."""
    name = getattr(fn, "__qualname__", "")
    if "<locals>" in name or "<lambda>" in name:
        raise TypeError(f"ranks import functions by name: move {name} to the top level of a module")
    try:
        return pickle.dumps((n, fn, args))
    except Exception as error:
        raise TypeError(f"{fn!r} or its arguments do not pickle: {error}") from error


def _serve(rank: int, size: int, port: int, pipe: Connection, stack_file: Path) -> None:
    """Join the job, then run functions until told to stop. The main function of a process."""
    if ROOT not in sys.path:
        sys.path.insert(0, ROOT)  # test modules unpickle as tests.<folder>.<module>
    torch.set_num_threads(1)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # each group holds some files open
    with stack_file.open("a") as stacks:
        faulthandler.register(signal.SIGUSR1, file=stacks, all_threads=True)
        store = dist.TCPStore("127.0.0.1", port, is_master=False)
        dist.init_process_group(
            "gloo", store=store, rank=rank, world_size=size, timeout=JOB_TIMEOUT
        )
        device_meshes = _device_meshes(rank, size)
        pipe.send_bytes(_answer(int))
        try:
            while job := pipe.recv_bytes():
                pipe.send_bytes(_answer(_call, job, device_meshes))
        except (EOFError, ConnectionResetError, BrokenPipeError):
            pass  # the test process is gone
        finally:
            os._exit(0)  # gloo's destructors may wait for peers that are gone


def _device_meshes(rank: int, size: int) -> list[DeviceMesh]:
    """Sub-meshes over the first 1, 2, ..., `size` ranks, their groups already made."""
    device_meshes = [DeviceMesh("cpu", list(range(n))) for n in range(1, size + 1)]
    for device_mesh in device_meshes:
        if rank < device_mesh.size():
            device_mesh.get_group()
        else:
            try:  # takes part in making the group, then learns that it has no place in it
                device_mesh.get_group()
            except RuntimeError:
                pass
    return device_meshes


def _call(job: bytes, device_meshes: list[DeviceMesh]) -> Any:
    n, fn, args = pickle.loads(job)
    return fn(device_meshes[n - 1], *args)


def _answer(call: Callable[..., Any], *args: Any) -> bytes:
    """Pickled pair of the pickled value and the traceback of a call."""
    try:
        value = call(*args)
    except BaseException:  # SystemExit in a test function must not end the rank
        return pickle.dumps((None, traceback.format_exc()))
    try:
        return pickle.dumps((pickle.dumps(value), None))
    except Exception as error:
        return pickle.dumps((None, f"its result, a {type(value)}, does not pickle: {error}"))


def _sum_of_ones(device_mesh: DeviceMesh) -> int:
    one = torch.ones((), dtype=torch.int64)
    dist.all_reduce(one, group=device_mesh.get_group())
    return int(one)
