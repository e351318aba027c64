"""The named pieces of communication that the rest of the package is written with.

Each takes a 1-D device mesh last and is collective over it: all its ranks call, in the same order.
Ranks are counted along the device mesh. A mesh of one rank sends nothing and needs no process
group.

Differentiable ones follow one rule: the gradient of a replicated tensor is replicated, and the
gradient of a rank's part is that part's, contributions of the other ranks included. Their backward
is collective as well, so a tensor must require grad on all ranks or on none.
"""

from tensormesh.distributed.collectives.agree import agree, raise_together
from tensormesh.distributed.collectives.exchange import PendingExchange, exchange, start_exchange
from tensormesh.distributed.collectives.gather import all_gather_ints, all_gather_rows
from tensormesh.distributed.collectives.reduce import all_max, all_min, all_reduce_sum, replicated
from tensormesh.distributed.collectives.share import broadcast, broadcast_object
from tensormesh.distributed.collectives.transport import CollectiveError

__all__ = [
    "CollectiveError",
    "PendingExchange",
    "agree",
    "all_gather_ints",
    "all_gather_rows",
    "all_max",
    "all_min",
    "all_reduce_sum",
    "broadcast",
    "broadcast_object",
    "exchange",
    "raise_together",
    "replicated",
    "start_exchange",
]
