"""Entry of shunter-host.pyz: `serve`, the two programs that git starts on this side of a transfer, and `purge`.

serve --data-root DIR --nonce N
purge --data-root DIR                                (from memory: home sends the file, and nothing in DIR is needed)
receive-pack --data-root DIR [--marker yes] --attempt A --token T MIRROR      (started by home's `git push`)
upload-pack --data-root DIR [--marker yes] --task T MIRROR                  (started by home's `git fetch`)
"""

from __future__ import annotations

import os
import sys
from typing import Dict, List

from ..wire import rpc
from ..wire.errors import ShunterError
from ..wire.ids import checked_id


def options(words: List[str]) -> tuple[Dict[str, str], List[str]]:
    """`--name value` pairs, then the rest; argparse would cost ten milliseconds at each start."""
    found, rest = {}, list(words)
    while len(rest) >= 2 and rest[0].startswith("--"):
        found[rest[0][2:]] = rest[1]
        rest = rest[2:]
    return found, rest


def serve(given: Dict[str, str]) -> int:
    from .forkserver import start_fork_server
    from .serve import file_error, make_layout, open_session

    try:
        layout = make_layout(os.path.expanduser(given["data-root"]))
        start_fork_server(layout.root, layout.run)
        open_session(layout, given["nonce"]).run()
    except (ShunterError, OSError) as exc:
        error = exc if isinstance(exc, ShunterError) else file_error(exc, "IO")
        sys.stdout.buffer.write(rpc.failure(None, error))
        return error.exit_status
    return 0


def receive_pack(given: Dict[str, str], path: str) -> int:
    from .layout import Layout
    from .ledger import Ledger
    from .mirror import exec_receive_pack

    layout = Layout(os.path.expanduser(given["data-root"]))
    ledger = Ledger(layout.ledger)
    ledger.check_lease(given["attempt"], given["token"])
    ledger.close()
    mark(given)
    task_id = checked_id(given["attempt"]).split("-")[0]
    exec_receive_pack(mirror_of(layout.root, path), task_id)
    return 70


def upload_pack(given: Dict[str, str], path: str) -> int:
    from .layout import Layout
    from .mirror import exec_upload_pack

    layout = Layout(os.path.expanduser(given["data-root"]))
    mirror, task_id = mirror_of(layout.root, path), checked_id(given["task"])
    mark(given)
    exec_upload_pack(mirror, task_id)
    return 70


def purge(given: Dict[str, str]) -> int:
    from .purge import purge_root
    from .serve import file_error

    root = os.path.realpath(os.path.expanduser(given["data-root"]))
    try:
        told = rpc.answer(0, purge_root(root))
    except OSError as exc:
        told = rpc.failure(0, file_error(exc, "HOST_INCAPABLE"))
    except ShunterError as exc:
        told = rpc.failure(0, exc)
    sys.stdout.buffer.write(b"\n" + told)  # what a login shell printed may lack its last newline
    return 0


def mark(given: Dict[str, str]) -> None:
    """Where home drops what a login shell has printed: from here on git speaks."""
    if "marker" in given:
        os.write(1, b"SHUNTER-BEGIN\n")


def mirror_of(root: str, path: str) -> str:
    """The path that git hands over, checked to be a mirror of this data root."""
    real = os.path.realpath(path)
    if os.path.dirname(real) != os.path.join(root, "mirrors") or not real.endswith(".git"):
        raise ShunterError("PROTOCOL", f"not a mirror of this host: {path}")
    return real


def main() -> None:
    command = sys.argv[1] if len(sys.argv) > 1 else ""
    given, rest = options(sys.argv[2:])
    try:
        if command == "serve":
            status = serve(given)
        elif command == "receive-pack" and len(rest) == 1:
            status = receive_pack(given, rest[0])
        elif command == "upload-pack" and len(rest) == 1:
            status = upload_pack(given, rest[0])
        elif command == "purge":
            status = purge(given)
        else:
            sys.stderr.write(__doc__ or "")
            status = 64
    except ShunterError as exc:
        sys.stderr.write(f"shunter-host: {exc.code}: {exc.text}\n")
        status = exc.exit_status
    except KeyError as exc:
        sys.stderr.write(f"shunter-host: option --{exc.args[0]} is missing\n")
        status = 64
    sys.stdout.flush()
    os._exit(status)  # worker threads of a session that ended hold nothing that matters
