"""ssh for git, to a host whose login shell prints something before the command runs: drops that and passes the rest.

Run as a script by `GIT_SSH_COMMAND`, in front of ssh's own words, only for hosts that were seen to be noisy. Ours at
the other end prints a marker line just before git takes over; without it, what came goes to stderr, so the reason is
not lost. Standard library, no package: it starts in a few milliseconds.
"""

from __future__ import annotations

import os
import subprocess
import sys

MARKER = b"SHUNTER-BEGIN\n"
NOISE_LIMIT = 64 * 1024


def main() -> int:
    ssh = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE)  # stdin and stderr are git's
    assert ssh.stdout is not None
    source = ssh.stdout.fileno()
    seen = b""
    while MARKER not in seen and len(seen) < NOISE_LIMIT:
        data = os.read(source, 65536)
        if not data:
            break
        seen += data
    noise, found, rest = seen.partition(MARKER)
    if not found:
        os.write(2, noise[-2000:])
        ssh.stdout.close()
        return ssh.wait() or 1
    try:
        while True:
            while rest:
                rest = rest[os.write(1, rest) :]
            rest = os.read(source, 1 << 20)
            if not rest:
                break
    except BrokenPipeError:
        ssh.stdout.close()
    os.close(1)
    return ssh.wait()


if __name__ == "__main__":
    sys.exit(main())
