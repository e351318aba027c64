"""Agree on the outcome, then raise on all ranks or on none."""

from collections.abc import Iterator
from contextlib import contextmanager

from tensormesh.distributed.collectives.envelope import pack, raise_shared
from tensormesh.distributed.collectives.reduce import all_min
from tensormesh.distributed.collectives.share import broadcast_object
from tensormesh.distributed.device_mesh import DeviceMesh


@contextmanager
def agree(device_mesh: DeviceMesh) -> Iterator[None]:
    """Run a block of local work, and leave it together. Collective over `device_mesh`.

    If the block fails on any rank, every rank raises the exception of the lowest of them; see
    :func:`raise_together`. The block itself must not communicate.

    Examples
    --------
    >>> from tensormesh.distributed.device_mesh import DeviceMesh
    >>> n_cells = 3
    >>> with agree(DeviceMesh("cpu", 0)):
    ...     if n_cells < 0:
    ...         raise ValueError(f"n_cells = {n_cells}: expected a number >= 0")
    """
    error: BaseException | None = None
    try:
        yield
    except (Exception, SystemExit) as failure:  # some readers call sys.exit on a bad file
        error = failure
    raise_together(error, device_mesh)


def raise_together(error: BaseException | None, device_mesh: DeviceMesh) -> None:
    """Raise on every rank if any rank has an error. Collective over `device_mesh`.

    One all-reduce of an integer if none has.

    Parameters
    ----------
    error
        This rank's exception, None if all is well here.

    Raises
    ------
    BaseException
        On every rank, the exception of the lowest failing rank: same type and message, with a
        note that names the rank; on ranks that failed in another way, from their own. One that
        does not pickle becomes a ``RuntimeError`` with its ``repr``.
    """
    size, me = device_mesh.size(), device_mesh.get_local_rank()
    if size == 1 and error is not None:
        raise error  # nobody to agree with
    failing = all_min(me if error is not None else size, device_mesh)
    if failing == size:
        return
    packed = broadcast_object(
        pack(error) if error is not None and me == failing else None, device_mesh, failing
    )
    raise_shared(packed, error, f"raised on rank {int(device_mesh.mesh[failing])}")
