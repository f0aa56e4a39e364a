"""What a host measures of itself: measured or None, never invented (P3).

Linux tells in /proc; macOS through `vm_stat` and `sysctl`, whose output pure functions read. What a system does not
tell is absent.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from typing import Dict, Optional, Tuple

from ..wire.messages import Facts
from .durable import is_full
from .patience import try_to_write
from .supervisor import read_boot_id

COMMAND_LIMIT_S = 5.0


def probe_facts(
    root: str, *, reserved: Tuple[int, int], running: Tuple[str, ...], programs: Tuple[str, ...], path: Optional[str]
) -> Facts:
    """`reserved`: slots and MB that leases hold now; `programs` are looked up on `path`, the login shell's."""
    total_mb, available_mb = memory_mb()
    ticks = cpu_ticks()
    return Facts(
        slots_used=reserved[0],
        memory_reserved_mb=reserved[1],
        memory_available_mb=available_mb,
        disk_free_mb=disk_free_mb(root),
        load_1m=load_1m(),
        cpus=os.cpu_count(),
        running=running,
        programs={name: shutil.which(name, path=path) for name in programs},
        memory_total_mb=total_mb,
        cpu_busy_ticks=ticks[0] if ticks else None,
        cpu_ticks=ticks[1] if ticks else None,
        pressure=pressure(),
        boot_id=read_boot_id() or None,
        kernel=os.uname().release,
        system=system_of(sys.platform, os.uname().release),
        now=time.time(),
    )


def system_of(platform: str, release: str) -> str:
    """`wsl` for Linux in the Windows Subsystem for Linux: its kernel says who built it."""
    return "wsl" if platform.startswith("linux") and "microsoft" in release.lower() else platform


def memory_available_mb() -> Optional[int]:
    return memory_mb()[1]


def memory_mb() -> Tuple[Optional[int], Optional[int]]:
    """Total and available memory, in MiB."""
    if sys.platform == "darwin":
        return parse_darwin_memory(_output("sysctl", "-n", "hw.memsize"), _output("vm_stat"))
    return parse_meminfo(_read("/proc/meminfo"))


def parse_meminfo(text: str) -> Tuple[Optional[int], Optional[int]]:
    """MemTotal and MemAvailable of proc_meminfo(5); the latter is there from Linux 3.14 on."""
    found = {name: int(kib) // 1024 for name, kib in re.findall(r"^(MemTotal|MemAvailable):\s+(\d+) kB$", text, re.M)}
    return found.get("MemTotal"), found.get("MemAvailable")


def parse_darwin_memory(memsize: str, vm_stat: str) -> Tuple[Optional[int], Optional[int]]:
    """Available is what vm_stat(1) calls free, speculative and inactive: given out without swapping.

    It prints free without the speculative ones. Purgeable pages are not added: they stand on the other queues already.
    """
    total_mb = int(memsize) >> 20 if memsize.strip().isdigit() else None
    size = re.search(r"page size of (\d+) bytes", vm_stat)
    pages = dict(re.findall(r"^Pages ([a-z -]+):\s+(\d+)\.$", vm_stat, re.M))
    wanted = ("free", "inactive", "speculative")
    if size is None or "free" not in pages or "inactive" not in pages:
        return total_mb, None
    return total_mb, sum(int(pages.get(name, 0)) for name in wanted) * int(size[1]) >> 20


def cpu_ticks() -> Optional[Tuple[int, int]]:
    return parse_cpu_ticks(_read("/proc/stat"))


def parse_cpu_ticks(text: str) -> Optional[Tuple[int, int]]:
    """Busy and all ticks of all cores since boot: first line of proc_stat(5). Guest time is part of user and nice."""
    words = text.split("\n", 1)[0].split()
    if len(words) < 6 or words[0] != "cpu" or not all(word.isdigit() for word in words[1:]):
        return None
    ticks = [int(word) for word in words[1:9]]
    return sum(ticks) - ticks[3] - ticks[4], sum(ticks)


def pressure() -> Dict[str, float]:
    """For each of cpu, memory and io that the kernel tells: the share of the last 10 s in which some task waited."""
    found = {}
    for name in ("cpu", "memory", "io"):
        share = parse_pressure(_read("/proc/pressure/" + name))
        if share is not None:
            found[name] = share
    return found


def parse_pressure(text: str) -> Optional[float]:
    seen = re.search(r"^some avg10=(\d+\.\d+)", text, re.M)
    return float(seen[1]) / 100 if seen else None


def disk_free_mb(path: str) -> Optional[int]:
    """What an ordinary user may still write on the file system of `path`, in MiB."""
    try:
        return shutil.disk_usage(path).free >> 20
    except OSError:
        return None


def require_writable(root: str) -> None:
    """Raises the OSError with which the data root takes no file, unless it is only full, which is measured."""
    try:
        try_to_write(root)
    except OSError as exc:
        if not is_full(exc):
            raise


def load_1m() -> Optional[float]:
    try:
        return os.getloadavg()[0]
    except OSError:
        return None


def _read(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read(65536)
    except OSError:
        return ""


def _output(*argv: str) -> str:
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=COMMAND_LIMIT_S)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode("ascii", "replace")
