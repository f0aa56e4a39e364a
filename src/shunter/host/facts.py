"""What a host measures of itself: measured or None, never invented (P3). Linux sources; elsewhere most are None."""

from __future__ import annotations

import os
import shutil
from typing import Optional, Tuple

from ..wire.messages import Facts


def probe_facts(root: str, *, reserved: Tuple[int, int], running: Tuple[str, ...], programs: Tuple[str, ...]) -> Facts:
    """`reserved`: slots and MB that leases hold now; `programs` are looked up on this process's PATH."""
    return Facts(
        slots_used=reserved[0],
        memory_reserved_mb=reserved[1],
        memory_available_mb=memory_available_mb(),
        disk_free_mb=disk_free_mb(root),
        load_1m=load_1m(),
        cpus=os.cpu_count(),
        running=running,
        programs={name: shutil.which(name) for name in programs},
    )


def memory_available_mb() -> Optional[int]:
    """MemAvailable of proc_meminfo(5), in MiB."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            for line in file:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) // 1024
    except (OSError, ValueError, IndexError):
        pass
    return None


def disk_free_mb(path: str) -> Optional[int]:
    """What an ordinary user may still write on the file system of `path`, in MiB."""
    try:
        return shutil.disk_usage(path).free >> 20
    except OSError:
        return None


def load_1m() -> Optional[float]:
    try:
        return os.getloadavg()[0]
    except OSError:
        return None
