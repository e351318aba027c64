"""Resident memory of this process, from Linux's /proc."""

import ctypes
import gc
from pathlib import Path


def release() -> None:
    """Give what was freed back to the system: else later growth hides in it (glibc)."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)


def reset_peak() -> int:
    """Start to measure the peak anew; resident bytes now."""
    Path("/proc/self/clear_refs").write_text("5")
    return _status("VmRSS")


def peak() -> int:
    """Largest number of resident bytes since `reset_peak`."""
    return _status("VmHWM")


def _status(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) * 1024
    raise RuntimeError(f"/proc/self/status has no {field}: memory is measured on Linux only")
