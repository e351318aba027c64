"""Where does a numeric call spend its time?

    python benchmarks/profile_assembly.py P1 laplace-cell 32 32 32
    python benchmarks/profile_assembly.py P1 laplace-cell 32 32 32 --points
    torchrun --standalone --nproc-per-node 2 benchmarks/profile_assembly.py P1 laplace 32 32 32

Prints the operators of one call, with `--trace FILE` also a timeline for a browser. On several
ranks, those of rank 0.
"""

import argparse
from pathlib import Path

import torch
import torch.distributed as dist
from harness import case_of_arguments
from peers.ours import Ours
from torch.profiler import ProfilerActivity, profile


def main() -> None:
    """Warm up, profile, print."""
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--points", action="store_true", help="new points, not a new coefficient")
    parser.add_argument("--rows", type=int, default=15, help="operators to show")
    parser.add_argument("--trace", type=Path, help="file for the timeline")
    case, given = case_of_arguments(parser)
    peer = Ours(case)
    peer.make_mesh()
    peer.prepare()
    peer.make_pattern()
    change = peer.move if given.points else peer.set_coefficient
    for k in range(given.repeat):
        change(k)
        peer.assemble()
    change(given.repeat)
    peer.barrier()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        peer.assemble()
    if peer.root:
        averages = record.key_averages()
        print(averages.table(sort_by="self_cpu_time_total", row_limit=given.rows))
        if given.trace is not None:
            record.export_chrome_trace(str(given.trace))
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
