"""Rows of a sharded sparse matrix that travel between ranks."""

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp
import torch

from tensormesh.distributed.collectives import exchange
from tensormesh.distributed.delivery import Delivery
from tensormesh.distributed.device_mesh import DeviceMesh
from tensormesh.distributed.halo import Halo
from tensormesh.distributed.multigrid.level import Csr, Floats, Ints


def with_ghost_rows(matrix: Csr, columns: Ints, halo: Halo, h: int = 1) -> tuple[Csr, Ints]:
    """Rows of all local unknowns, those of the ghosts from their owners. **Collective.**

    Parameters
    ----------
    matrix
        Rows of the owned unknowns, ``[n_owned, m]``.
    columns
        Global number of each column, int64 ``[m]``.
    halo
        Halo of the rows, `h` an index.
    h
        Rows an index.

    Returns
    -------
    matrix, columns
        ``[n_local, m + new]`` and ``[m + new]``: first the same columns, then those that only
        ghosts name.
    """
    send = [h * count for count in halo.send_counts]
    receive = [h * count for count in halo.recv_counts]
    node = halo.send_index.cpu().numpy()
    rows = matrix[(node[:, None] * h + np.arange(h)).ravel()]
    sent_lengths = np.diff(rows.indptr).astype(np.int64)
    lengths = _move(sent_lengths, send, receive, halo.device_mesh)
    send, receive = _sums(sent_lengths, send), _sums(lengths, receive)
    numbers = _move(columns[rows.indices], send, receive, halo.device_mesh)
    data = _move(rows.data, send, receive, halo.device_mesh)
    columns, place = extended(columns, numbers)
    pointers = np.concatenate([[0], np.cumsum(lengths)])
    ghosts = sp.csr_matrix((data, place, pointers), shape=(lengths.size, columns.size))
    return sp.vstack([widened(matrix, columns.size), ghosts], format="csr"), columns


def to_owners(
    row: Ints, col: Ints, values: Floats, offsets: Ints, device_mesh: DeviceMesh
) -> tuple[Ints, Ints, Floats]:
    """Send entries to the ranks that own their rows. **Collective.**

    Parameters
    ----------
    row, col
        Global row and column of each entry, int64 ``[n]``.
    values
        ``[n]``.
    offsets
        Rank ``r`` owns the rows ``offsets[r] .. offsets[r+1] - 1``.
    device_mesh
        The ranks.

    Returns
    -------
    row, col, values
        Entries of this rank's rows that were elsewhere.
    """
    owner = np.searchsorted(offsets, row, side="right") - 1
    device = device_mesh.device
    sending = Delivery(torch.from_numpy(owner).to(device), device_mesh)
    numbers = sending.there(torch.from_numpy(np.stack([row, col], axis=1)).to(device))
    row, col = numbers.cpu().numpy().T
    return row, col, sending.there(torch.from_numpy(values).to(device)).cpu().numpy()


def extended(columns: Ints, numbers: Ints) -> tuple[Ints, Ints]:
    """`columns` and then what only `numbers` has; the place of each number among them.

    Parameters
    ----------
    columns
        Different numbers, int64 ``[m]``, in any order.
    numbers
        int64 ``[n]``.
    """
    columns = np.concatenate([columns, np.setdiff1d(numbers, columns)])
    order = np.argsort(columns)
    return columns, order[np.searchsorted(columns, numbers, sorter=order)]


def widened(matrix: Csr, n_columns: int) -> Csr:
    """The same entries in a matrix of more columns."""
    shape = (matrix.shape[0], n_columns)
    return sp.csr_matrix((matrix.data, matrix.indices, matrix.indptr), shape=shape)


def _move(x: Ints, send: Sequence[int], receive: Sequence[int], device_mesh: DeviceMesh) -> Ints:
    """Exchange of rows of an array of the host."""
    sent = torch.from_numpy(np.ascontiguousarray(x)).to(device_mesh.device)
    received: Ints = exchange(sent, send, receive, device_mesh).cpu().numpy()
    return received


def _sums(lengths: Ints, counts: Sequence[int]) -> list[int]:
    """Sum of the lengths of the rows from or to each rank."""
    ends = np.concatenate([[0], np.cumsum(lengths)])[np.cumsum([0, *counts])]
    sums: list[int] = np.diff(ends).tolist()
    return sums
