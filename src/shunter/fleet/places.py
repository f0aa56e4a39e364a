"""Where home keeps its things: the XDG base directories, and nothing else (decision 2).

Finding a place creates nothing; who writes makes the directory then, closed to others (0700). A variable that holds a
relative path is ignored, as the specification demands: a detached dispatcher has another working directory.

The wake FIFO stands beside the store and not in XDG_RUNTIME_DIR: a submit from cron has no such variable, and would
then wake nobody.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..wire.errors import ShunterError


@dataclass(frozen=True, slots=True)
class Places:
    """Absolute paths; none need exist."""

    config_file: Path
    config_given: bool  # by SHUNTER_CONFIG: then a missing file is an error
    state_dir: Path
    store_file: Path
    prompts_dir: Path
    transfer_dir: Path
    dispatcher_log: Path
    wake_fifo: Path
    host_data_root: Path  # of the host `local`


def find_places(environ: Mapping[str, str] | None = None) -> Places:
    """Raises CONFIG_INVALID when there is no home directory to start from."""
    environ = os.environ if environ is None else environ
    config_dir = _base(environ, "XDG_CONFIG_HOME", ".config")
    state_dir = _base(environ, "XDG_STATE_HOME", ".local/state")
    given = environ.get("SHUNTER_CONFIG", "")
    return Places(
        config_file=Path(given).absolute() if given else config_dir / "config.toml",
        config_given=bool(given),
        state_dir=state_dir,
        store_file=state_dir / "store.db",
        prompts_dir=state_dir / "prompts",
        transfer_dir=state_dir / "transfer",
        dispatcher_log=state_dir / "dispatcher.log",
        wake_fifo=state_dir / "wake",
        host_data_root=_base(environ, "XDG_DATA_HOME", ".local/share"),
    )


def _base(environ: Mapping[str, str], name: str, below_home: str) -> Path:
    given = environ.get(name, "")
    base = Path(given) if os.path.isabs(given) else _home(environ) / below_home  # noqa: PTH117
    return base / "shunter"


def _home(environ: Mapping[str, str]) -> Path:
    given = environ.get("HOME", "")
    if os.path.isabs(given):  # noqa: PTH117
        return Path(given)
    try:
        return Path("~").expanduser()  # from the password database
    except RuntimeError as exc:
        raise ShunterError("CONFIG_INVALID", "there is no home directory", hint="set HOME to an absolute path") from exc
