"""What the numbers were measured on."""

import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any


def describe_machine() -> dict[str, Any]:
    """Processor, cores, memory, kernel, Python, load and date."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(memory / 2**30, 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "load_at_start": round(os.getloadavg()[0], 1),
        "commit": _commit(),
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _commit() -> str | None:
    command = ["git", "describe", "--always", "--dirty"]
    done = subprocess.run(
        command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or None
