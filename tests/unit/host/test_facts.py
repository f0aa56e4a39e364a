"""What systems print about themselves, recorded; what is not told is absent, never zero."""

from __future__ import annotations

import pytest

from shunter.host.facts import (
    parse_cpu_ticks,
    parse_darwin_memory,
    parse_meminfo,
    parse_pressure,
    probe_facts,
    system_of,
)
from shunter.host.proof import find_mount

# Forms of vm_stat(1), with numbers of our own: Apple silicon with a compressor, Intel, and an old system.
VM_STAT = """Mach Virtual Memory Statistics: (page size of 16384 bytes)
Pages free:                                    61254.
Pages active:                                 398276.
Pages inactive:                               393874.
Pages speculative:                              3466.
Pages throttled:                                   0.
Pages wired down:                             120183.
Pages purgeable:                                6581.
"Translation faults":                     1234567890.
Pages copy-on-write:                        12345678.
Pages zero filled:                         912345678.
Pages reactivated:                          11223344.
Pages purged:                                5566778.
File-backed pages:                            378262.
Anonymous pages:                              417354.
Pages stored in compressor:                   208263.
Pages occupied by compressor:                  81336.
Decompressions:                             18805352.
Compressions:                               34308412.
Pageins:                                    44332211.
Pageouts:                                     102030.
Swapins:                                           0.
Swapouts:                                          0.
"""
INTEL = """Mach Virtual Memory Statistics: (page size of 4096 bytes)
Pages free:                               32768.
Pages active:                           1200416.
Pages inactive:                         1177344.
Pages speculative:                        16384.
Pages throttled:                              0.
Pages wired down:                        903552.
Pages purgeable:                          52224.
"Translation faults":                 987654321.
"""
FORMER = """Mach Virtual Memory Statistics: (page size of 4096 bytes)
Pages free:                        131072.
Pages active:                      540672.
Pages inactive:                    262144.
Pages wired down:                  114688.
"Translation faults":            76543210.
Object cache: 15 hits of 1210 lookups (1% hit rate)
"""


@pytest.mark.parametrize(
    ("memsize", "vm_stat", "found"),
    [
        ("17179869184\n", VM_STAT, (16384, (61254 + 393874 + 3466) * 16384 >> 20)),
        ("17179869184\n", INTEL, (16384, (32768 + 1177344 + 16384) * 4096 >> 20)),
        ("4294967296\n", FORMER, (4096, (131072 + 262144) * 4096 >> 20)),
        ("", INTEL, (None, (32768 + 1177344 + 16384) * 4096 >> 20)),
    ],
)
def test_memory_of_a_mac(memsize, vm_stat, found):
    assert parse_darwin_memory(memsize, vm_stat) == found


@pytest.mark.parametrize(
    ("memsize", "vm_stat"), [("", ""), ("x", "nonsense"), ("", VM_STAT.replace("Pages free", "Pages"))]
)
def test_a_mac_that_does_not_tell(memsize, vm_stat):
    assert parse_darwin_memory(memsize, vm_stat) == (None, None)


def test_memory_of_linux():
    assert parse_meminfo("MemTotal:       24684000 kB\nMemFree: 1 kB\nMemAvailable:   22310912 kB\n") == (24105, 21788)
    assert parse_meminfo("MemTotal:       24684000 kB\nMemFree: 1 kB\n") == (24105, None)
    assert parse_meminfo("") == (None, None)


def test_cpu_ticks_leave_out_idle_and_iowait_and_count_guests_once():
    assert parse_cpu_ticks("cpu  100 20 30 1000 50 1 2 3 40 5\ncpu0 1 2 3 4\n") == (156, 1206)
    assert parse_cpu_ticks("") is None
    assert parse_cpu_ticks("intr 1 2 3 4 5 6\n") is None


def test_pressure_is_a_share():
    assert parse_pressure("some avg10=12.50 avg60=1.00 avg300=0.00 total=1\nfull avg10=0.00 total=0\n") == 0.125
    assert parse_pressure("") is None


@pytest.mark.parametrize(
    ("platform", "release", "system"),
    [
        ("linux", "5.15.167.4-microsoft-standard-WSL2", "wsl"),
        ("linux", "6.6.87.2-microsoft-standard-WSL2", "wsl"),
        ("linux", "4.4.0-19041-Microsoft", "wsl"),
        ("linux", "6.1.0-30-amd64", "linux"),
        ("darwin", "24.3.0", "darwin"),
    ],
)
def test_the_windows_subsystem_is_known_by_its_kernel(platform, release, system):
    assert system_of(platform, release) == system


def test_facts_of_this_machine(tmp_path):
    found = probe_facts(str(tmp_path), reserved=(1, 2), running=(), programs=("sh", "nope-nope"), path="/bin:/usr/bin")
    assert found.programs["sh"] in ("/bin/sh", "/usr/bin/sh") and found.programs["nope-nope"] is None
    assert found.memory_total_mb and found.memory_available_mb and found.now
    assert found.cpu_busy_ticks is not None and found.cpu_busy_ticks <= (found.cpu_ticks or 0)
    assert all(0 <= share <= 1 for share in found.pressure.values())


MOUNTS = r"""22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/root rw
30 22 0:25 / /mnt/c rw,noatime - 9p C:\134 rw,dirsync
31 22 0:26 / /data\040root rw - fuse.sshfs me@x: rw
32 22 0:27 / /srv rw - ext4 /dev/b rw
33 32 0:28 / /srv rw - nfs4 server:/srv rw
34 22 0:29 / /mnt/d rw,noatime - drvfs D: rw,uid=1000,gid=1000
35 22 0:30 / /auto rw,relatime shared:9 - autofs systemd-1 rw,fd=52,pgrp=1
36 35 0:31 / /auto/home rw,relatime shared:10 master:3 - nfs files:/home rw,vers=3,nolock
37 22 0:32 /@home /home rw,relatime shared:11 - btrfs /dev/nvme0n1p2 rw,subvol=/@home
38 37 0:33 / /home/me/cloud rw,nosuid - fuse.rclone remote: rw,user_id=1000
"""


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("/opt/me/.local", ("/", "ext4")),
        ("/mnt/c/Users/me", ("/mnt/c", "9p")),
        ("/mnt/cd", ("/", "ext4")),
        ("/data root/x", ("/data root", "fuse.sshfs")),
        ("/srv/x", ("/srv", "nfs4")),
        ("/mnt/d/data", ("/mnt/d", "drvfs")),
        ("/auto/home/me", ("/auto/home", "nfs")),
        ("/home/me/data", ("/home", "btrfs")),
        ("/home/me/cloud", ("/home/me/cloud", "fuse.rclone")),
    ],
)
def test_the_mount_of_a_path(path, found):
    assert find_mount(MOUNTS, path) == found
