"""Rows from every rank to every rank, by counts that both sides know."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from tensormesh.distributed.collectives import transport
from tensormesh.distributed.device_mesh import DeviceMesh


def exchange(
    x: Tensor, send_counts: Sequence[int], recv_counts: Sequence[int], device_mesh: DeviceMesh
) -> Tensor:
    """Send the rows of `x` to the ranks and return those received. Collective over `device_mesh`.

    Differentiable any number of times; the backward is the exchange with the counts swapped.

    Parameters
    ----------
    x
        Rows, ``(sum(send_counts), ...)``, those for rank 0 first. Any dtype; dtype and trailing
        dimensions are the same on all ranks.
    send_counts, recv_counts
        Number of rows to and from each rank; ``send_counts[s]`` of rank r must be
        ``recv_counts[r]`` of rank s. Nobody checks that: a mismatch waits for ever.

    Returns
    -------
    Tensor
        Rows ``(sum(recv_counts), ...)``, those of rank 0 first.

    Raises
    ------
    ValueError
        If the counts are not one per rank, or do not add up to the rows of `x`.
    """
    return _Exchange.apply(x, send_counts, recv_counts, device_mesh)


def start_exchange(
    x: Tensor,
    send_counts: Sequence[int],
    recv_counts: Sequence[int],
    device_mesh: DeviceMesh,
    *,
    out: Tensor | None = None,
) -> "PendingExchange":
    """Begin an :func:`exchange` without waiting for it, and without gradient.

    Neither `x` nor `out` may be changed before ``wait()``. Collective over `device_mesh`.

    Parameters
    ----------
    out
        Contiguous tensor ``(sum(recv_counts), ...)`` to receive into, of the dtype and device of
        `x`.

    Raises
    ------
    ValueError
        If the counts or `out` do not fit.
    """
    group = transport.line_group(device_mesh)
    _check_counts(x, send_counts, recv_counts, device_mesh)
    shape = (sum(recv_counts), *x.shape[1:])
    received = torch.empty(shape, dtype=x.dtype, device=x.device) if out is None else out
    _check_output(received, shape, x)
    if group is None:
        received.detach().copy_(x.detach())
        return PendingExchange(received, device_mesh, [], [], [])
    sent = transport.as_wire_rows(x.contiguous())
    with transport.naming("all_to_all", device_mesh):
        works, copies = _post(
            sent, transport.as_wire_rows(received), send_counts, recv_counts, device_mesh
        )
    return PendingExchange(received, device_mesh, works, copies, [sent])


class PendingExchange:
    """An exchange under way; ``wait()`` gives the rows received."""

    def __init__(
        self,
        received: Tensor,
        device_mesh: DeviceMesh,
        works: list[dist.Work],
        copies: list[tuple[Tensor, Tensor]],
        keep: list[Tensor],
    ) -> None:
        self._received = received
        self._device_mesh = device_mesh
        self._works = works
        self._copies = copies
        self._keep = keep  # buffers that the transport still reads

    def wait(self) -> Tensor:
        """Rows received, ``(sum(recv_counts), ...)``; may be called again.

        Raises
        ------
        CollectiveError
            If the exchange failed or timed out.
        """
        with transport.naming("all_to_all", self._device_mesh):
            for work in self._works:
                work.wait()
        for target, source in self._copies:
            target.copy_(source)
        self._works, self._copies, self._keep = [], [], []
        return self._received


class _Exchange(torch.autograd.Function):
    @staticmethod
    def forward(
        x: Tensor, send_counts: Sequence[int], recv_counts: Sequence[int], device_mesh: DeviceMesh
    ) -> Tensor:
        return start_exchange(x, send_counts, recv_counts, device_mesh).wait()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        _, send_counts, recv_counts, device_mesh = inputs
        ctx.way_back = (recv_counts, send_counts, device_mesh)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        return exchange(gradients[0], *ctx.way_back), None, None, None


def _post(
    sent: Tensor,
    received: Tensor,
    send_counts: Sequence[int],
    recv_counts: Sequence[int],
    device_mesh: DeviceMesh,
) -> tuple[list[dist.Work], list[tuple[Tensor, Tensor]]]:
    """Start all messages; return works to wait for and copies (target, source) to make then."""
    limit = transport.rows_per_message(sent)
    if max((*send_counts, *recv_counts)) <= limit:
        return [_all_to_all(received, sent, recv_counts, send_counts, device_mesh)], []
    sends, receives = sent.split(list(send_counts)), received.split(list(recv_counts))
    works, copies = _post_short(sends, receives, limit, device_mesh)
    works += _post_long(sends, receives, limit, device_mesh)
    me = device_mesh.get_local_rank()
    if len(sends[me]) > limit:
        copies.append((receives[me], sends[me]))
    return works, copies


def _post_short(
    sends: Sequence[Tensor], receives: Sequence[Tensor], limit: int, device_mesh: DeviceMesh
) -> tuple[list[dist.Work], list[tuple[Tensor, Tensor]]]:
    """One collective for the messages within the limit; longer ones count as empty.

    Whether a message is long is known to both its ends, so this needs no agreement.
    """
    short_sends = [rows if len(rows) <= limit else rows[:0] for rows in sends]
    targets = [rows if len(rows) <= limit else rows[:0] for rows in receives]
    send_counts, recv_counts = [len(rows) for rows in short_sends], [len(rows) for rows in targets]
    arrived = receives[0].new_empty(sum(recv_counts), receives[0].shape[1])
    work = _all_to_all(arrived, torch.cat(short_sends), recv_counts, send_counts, device_mesh)
    return [work], list(zip(targets, arrived.split(recv_counts), strict=True))


def _post_long(
    sends: Sequence[Tensor], receives: Sequence[Tensor], limit: int, device_mesh: DeviceMesh
) -> list[dist.Work]:
    """Messages beyond the limit, between pairs of ranks, in pieces."""
    group = device_mesh.get_group()
    pieces = [
        dist.P2POp(move, piece, group=group, group_peer=peer)
        for move, messages in ((dist.isend, sends), (dist.irecv, receives))
        for peer, rows in enumerate(messages)
        if len(rows) > limit and peer != device_mesh.get_local_rank()
        for piece in rows.split(limit)
    ]
    return dist.batch_isend_irecv(pieces) if pieces else []


def _all_to_all(
    received: Tensor,
    sent: Tensor,
    recv_counts: Sequence[int],
    send_counts: Sequence[int],
    device_mesh: DeviceMesh,
) -> dist.Work:
    return dist.all_to_all_single(
        received,
        sent,
        list(recv_counts),
        list(send_counts),
        group=device_mesh.get_group(),
        async_op=True,
    )


def _check_counts(
    x: Tensor, send_counts: Sequence[int], recv_counts: Sequence[int], device_mesh: DeviceMesh
) -> None:
    for name, counts in (("send_counts", send_counts), ("recv_counts", recv_counts)):
        if len(counts) != device_mesh.size() or any(count < 0 for count in counts):
            raise ValueError(
                f"{name} = {list(counts)}: expected one count >= 0 for each of the "
                f"{device_mesh.size()} ranks"
            )
    if x.ndim == 0 or sum(send_counts) != len(x):
        raise ValueError(
            f"x has the shape {tuple(x.shape)}, but send_counts = {list(send_counts)} ask for "
            f"{sum(send_counts)} rows"
        )


def _check_output(out: Tensor, shape: tuple[int, ...], x: Tensor) -> None:
    if (out.shape, out.dtype, out.device) != (shape, x.dtype, x.device):
        raise ValueError(
            f"out is {tuple(out.shape)}, {out.dtype}, {out.device}: expected {shape}, {x.dtype}, "
            f"{x.device}"
        )
    if not out.is_contiguous():
        raise ValueError("out is not contiguous: pass a contiguous tensor to receive into")
