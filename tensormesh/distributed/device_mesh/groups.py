"""The process groups of one root mesh: made on first use by all ranks together, then shared."""

import weakref
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from tensormesh.distributed.device_mesh.layout import Layout, Span

Backend = str | Any  # a name, a ProcessGroup options object, or the pair of both


class GroupRegistry:
    """Process groups by span: the group of this rank's line along some root dimensions.

    Parameters
    ----------
    layout
        Arrangement of the root mesh.
    backends
        Backend per span where it is not that of the default group.
    """

    def __init__(self, layout: Layout, backends: Mapping[Span, Backend] | None = None) -> None:
        self.layout = layout
        self.backends = dict(backends or {})
        self._own_lines_only = False
        self._groups: dict[Span, dist.ProcessGroup | None] = {}
        self._world: weakref.ref[Any] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the groups, which belong to one process and one job."""
        return {**self.__dict__, "_groups": {}, "_world": None}

    def adopt(self, span: Span, group: dist.ProcessGroup) -> None:
        """Use an existing group for the line along `span`.

        Other ranks may then have other layouts, so that before groups are made later the ranks
        tell each other their lines.
        """
        self._forget_former_job()
        self._groups[span] = group
        self._own_lines_only = True

    def override(self, span: Span, backend: Backend) -> None:
        """Choose the backend of the groups along `span`, before they are made.

        Raises
        ------
        ValueError
            If they exist already, or another backend was chosen.
        """
        if self.backends.get(span) == backend:
            return
        if span in self._groups or span in self.backends:
            raise ValueError(
                f"backend_override = {backend!r} comes too late: the groups along the root "
                f"dimensions {span} have their backend; choose it where they are first named"
            )
        self.backends[span] = backend

    def get(self, span: Span) -> dist.ProcessGroup | None:
        """Group of this rank's line along `span`, None if the rank has no line.

        Collective over the world on the first call of each span: the groups of all lines are
        made, in the order of :meth:`Layout.lines`. Later calls make nothing.

        Raises
        ------
        RuntimeError
            Without a process group.
        ValueError
            If the mesh holds ranks that the job does not have.
        """
        if not dist.is_initialized():
            raise RuntimeError(
                "a process group is needed here and there is none: call "
                "torch.distributed.init_process_group first"
            )
        self._forget_former_job()
        if span not in self._groups:
            self._groups[span] = self._make(span)
        return self._groups[span]

    def _forget_former_job(self) -> None:
        """Drop groups that died with an earlier default process group."""
        world = dist.group.WORLD
        if self._world is None or self._world() is not world:
            self._groups, self._world = {}, weakref.ref(world)

    def _make(self, span: Span) -> dist.ProcessGroup | None:
        world_size = dist.get_world_size()
        if max(self.layout.ranks) >= world_size:
            raise ValueError(
                f"the device mesh holds rank {max(self.layout.ranks)}, but the job has only "
                f"{world_size} ranks: give ranks below that number"
            )
        name, options = _split(self.backends.get(span))
        mine = None
        lines = self.layout.lines(span)
        for line in _lines_of_all_ranks(lines) if self._own_lines_only else lines:
            # sort_ranks=False only where it matters: ascending ranks work on any torch release.
            order: dict[str, Any] = {} if list(line) == sorted(line) else {"sort_ranks": False}
            group = dist.new_group(
                line,
                timeout=job_timeout(),
                backend=name,
                pg_options=options,
                **order,
            )
            if dist.get_rank() in line:
                mine = group
        return mine


def _lines_of_all_ranks(lines: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Lines that any rank of the world knows of, each once. Collective over the world."""
    gathered: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(gathered, list(lines), group=dist.group.WORLD)
    return sorted({tuple(line) for of_rank in gathered for line in of_rank})


def job_timeout() -> timedelta | None:
    """Timeout given to ``init_process_group``; None (torch's own default) if it is not known.

    torch gives new groups its default of 30 (gloo) or 10 (NCCL) minutes instead of the job's.
    """
    world: Any = dist.group.WORLD
    device = world._device_types[0]
    return getattr(getattr(world._get_backend(device), "options", None), "_timeout", None)


def _split(backend: Backend | None) -> tuple[str | None, Any]:
    """Name and options of a backend override."""
    if backend is None or isinstance(backend, str):
        return backend, None
    if isinstance(backend, tuple):
        return backend
    return None, backend
