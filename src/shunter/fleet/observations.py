"""What was last seen of each host, kept in a small file per host of home's state for every reader (P8).

An observation is advice and always has an age. A file can be lost or broken at any time: then nothing is known yet.
Whoever asks the hosts holds the lock `hosts.lock`, so one asks and the others read what it wrote. The dispatcher asks
many hosts at once and answers come in any order: a file per host, so that no answer undoes another's.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Optional  # the codec reads Optional[X]

from ..host.durable import write_durably
from ..wire.codec import dumps, loads
from ..wire.errors import ShunterError
from ..wire.messages import Facts, Hello
from ..wire.record import dataclass
from .places import Places

FRESH_S = 2.0
LONGEST_PAUSE_S = 30.0  # between two tries of a host that does not answer, unless somebody insists


@dataclass(frozen=True)
class Observation:
    """`facts` and `hello` are of the last answer, at `answered_at`; the error is of the last try, if it failed."""

    name: str
    reached_as: str  # another way to it is another host
    asked_at: float
    answered_at: Optional[float] = None  # noqa: UP045
    facts: Optional[Facts] = None  # noqa: UP045
    hello: Optional[Hello] = None  # noqa: UP045
    error_code: Optional[str] = None  # noqa: UP045
    error_text: Optional[str] = None  # noqa: UP045
    hint: Optional[str] = None  # noqa: UP045
    failures: int = 0  # in a row

    def is_fresh(self, now: float) -> bool:
        """Whether it need not be asked again yet; a host that fails again and again is asked less often."""
        pause_s = FRESH_S if not self.failures else min(LONGEST_PAUSE_S, FRESH_S * 2.0 ** min(self.failures - 1, 10))
        return 0 <= now - self.asked_at < pause_s


def answered(name: str, reached_as: str, hello: Hello, facts: Facts, *, now: float) -> Observation:
    return Observation(name, reached_as, now, now, facts, hello)


def failed(before: Observation | None, name: str, reached_as: str, exc: ShunterError, *, now: float) -> Observation:
    """What was known stays, with its age."""
    same = before if before is not None and before.reached_as == reached_as else None
    return Observation(
        name,
        reached_as,
        asked_at=now,
        answered_at=same.answered_at if same else None,
        facts=same.facts if same else None,
        hello=same.hello if same else None,
        error_code=exc.code,
        error_text=exc.text,
        hint=exc.hint,
        failures=(same.failures if same else 0) + 1,
    )


def load_observations(places: Places) -> dict[str, Observation]:
    """By name; without those that cannot be read."""
    found = {}
    for path in sorted(_folder(places).glob("*.json")):
        with suppress(OSError, ValueError, ShunterError):
            known = loads(Observation, path.read_text("utf-8"))
            found[known.name] = known
    return found


def record_observation(places: Places, found: Observation) -> None:
    """Over what was known of this host; what cannot be written is only lost advice."""
    with suppress(OSError, ShunterError):
        _folder(places).mkdir(mode=0o700, parents=True, exist_ok=True)
        write_durably(str(_folder(places) / f"{found.name}.json"), dumps(found).encode())


def forget_observation(places: Places, name: str) -> None:
    with suppress(OSError):
        (_folder(places) / f"{name}.json").unlink()


def _folder(places: Places) -> Path:
    return places.state_dir / "hosts"


@contextmanager
def asking(places: Places, *, limit_s: float) -> Iterator[bool]:
    """The right to ask; False when another process had it for all of `limit_s`."""
    places.state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    fd = os.open(places.state_dir / "hosts.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    give_up = time.monotonic() + limit_s
    try:
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                held = True
                break
            except BlockingIOError:
                if time.monotonic() >= give_up:
                    held = False
                    break
                time.sleep(0.02)
        yield held
    finally:
        os.close(fd)
