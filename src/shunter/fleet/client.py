"""A typed client of one host: one session of its helper, shared by every thread of this process.

A call goes out with a number and waits for the answer with that number. When the session ends, every waiting call
raises HOST_UNREACHABLE: nothing is known about what it asked for, and the caller asks again by id. The next call
opens a new session. Notifications go to the listener in the reader's thread; after a lost session the listener gets
None, which means "ask about everything you watch".
"""

from __future__ import annotations

import random
import subprocess
import threading
import time
from collections.abc import Callable
from typing import Any

from ..wire import rpc
from ..wire.errors import CODES, ShunterError
from ..wire.ids import new_nonce
from ..wire.messages import MAGIC, METHODS, Hello
from .transport import Transport

CALL_LIMIT_S = 60.0
ACCEPT_LIMIT_S = 1800.0  # a checkout of a large tree
HELLO_LIMIT_S = 30.0
OPENING_LIMIT_S = 2.0  # how long a caller waits for another one that opens the session

Listener = Callable[[str | None, dict[str, Any]], None]


class Session:
    """One running helper."""

    def __init__(self, transport: Transport, on_note: Listener, on_end: Callable[[Session], None]) -> None:
        nonce = new_nonce()
        self.transport, self.host = transport, transport.name
        self.on_note, self.on_end = on_note, on_end
        self.writing = threading.Lock()
        self.waiting: dict[int, list[Any]] = {}
        self.guard = threading.Lock()
        self.last_number = 0
        self.ended = False
        try:
            self.process = subprocess.Popen(
                transport.session_argv(nonce),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,  # Ctrl-C at a terminal is for the command, not for its helper
            )
        except OSError as exc:
            raise ShunterError("HOST_UNREACHABLE", f"host {self.host}: {exc.filename}: {exc.strerror}") from exc
        self.stderr_tail = b""
        self.noise = b""  # what a login shell printed before the helper greeted
        self.fault = ""  # why the session is no good, when that came over the wire
        self.reader_of_stderr = threading.Thread(target=self._read_stderr, daemon=True)
        self.reader_of_stderr.start()
        watchdog = threading.Timer(HELLO_LIMIT_S, self.process.kill)
        watchdog.start()
        try:
            self.hello = self._read_hello(nonce)
        except BaseException:
            self.close()
            raise
        finally:
            watchdog.cancel()
        threading.Thread(target=self._read, daemon=True).start()

    def _read_hello(self, nonce: str) -> Hello:
        stdout = self.process.stdout
        assert stdout is not None
        seen = b""
        while len(seen) < rpc.NOISE_LIMIT:
            line = stdout.readline(2 * rpc.NOISE_LIMIT)
            if not line:
                break
            found = rpc.parse_hello(line, nonce)
            if found is not None:
                self.noise = seen + line[: line.index(MAGIC.encode())]
                if self.noise:
                    self.transport.heard_noise()
                return found
            self._raise_refusal(line)
            seen += line
        raise self.transport.failure(self._exit_status(), seen + self.stderr_tail)

    def _exit_status(self) -> int | None:
        """Of a helper whose output ended; None when it hangs on."""
        try:
            status = self.process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            return None
        self.reader_of_stderr.join(timeout=2)
        return status

    def _raise_refusal(self, line: bytes) -> None:
        """The helper may say in a message why it does not start."""
        _, begin, rest = line.partition(b'{"jsonrpc"')  # a banner without a final newline may stand in front
        try:
            error = rpc.parse(begin + rest).error if begin else None
        except ShunterError:
            return  # noise that looks like it
        if error is not None:
            raise _error_of(self.host, error)

    def _read_stderr(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.stderr_tail = (self.stderr_tail + line)[-4096:]

    def _read(self) -> None:
        stdout = self.process.stdout
        assert stdout is not None
        try:
            while True:
                line = stdout.readline(rpc.MESSAGE_LIMIT + 1)
                if not line.endswith(b"\n"):
                    break
                message = rpc.parse(line)
                if message.method is not None:
                    self.on_note(message.method, message.params if isinstance(message.params, dict) else {})
                    continue
                with self.guard:
                    slot = self.waiting.get(message.id or -1)
                if slot is not None:
                    slot[1] = message
                    slot[0].set()
                elif message.id is None and message.error is not None:
                    self.fault = message.error[1]
        except ShunterError as exc:
            self.fault = exc.text
        except (ValueError, OSError):
            pass
        finally:
            self._end()  # also after a fault of the listener: no call may wait for a reader that is gone

    def _end(self) -> None:
        with self.guard:
            first, self.ended = not self.ended, True
            slots = list(self.waiting.values())
        for slot in slots:
            slot[0].set()
        self.close()
        if first:
            self.on_end(self)

    def call(self, method: str, ask: Any, *, limit_s: float) -> Any:
        with self.guard:
            if self.ended:
                raise self._gone()
            self.last_number += 1
            number = self.last_number
            slot: list[Any] = [threading.Event(), None]
            self.waiting[number] = slot
        try:
            data = rpc.request(number, method, ask, limit_s)
            with self.writing:
                assert self.process.stdin is not None
                self.process.stdin.write(data)
                self.process.stdin.flush()
            if not slot[0].wait(limit_s):
                raise ShunterError("DEADLINE", f"host {self.host} did not answer {method} within {limit_s:.0f} s")
        except (OSError, ValueError) as exc:
            raise self._gone() from exc
        finally:
            with self.guard:
                del self.waiting[number]
        message = slot[1]
        if message is None:
            raise self._gone()
        if message.error is not None:
            raise _error_of(self.host, message.error)
        return rpc.decoded(METHODS[method][1], message.result, method)

    def _gone(self) -> ShunterError:
        tail = self.stderr_tail.decode("utf-8", "replace").strip().splitlines()
        why = self.fault or (tail[-1] if tail else "")
        return ShunterError("HOST_UNREACHABLE", f"host {self.host}: the session ended{': ' if why else ''}{why}")

    def close(self) -> None:
        """End the session; what it had begun on the host is finished there."""
        try:
            if self.process.stdin is not None:
                self.process.stdin.close()
        except OSError:
            pass
        threading.Thread(target=self._reap, daemon=True).start()

    def _reap(self) -> None:
        try:
            self.process.wait(timeout=90)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def _error_of(host: str, error: tuple[str, str, str | None]) -> ShunterError:
    code, text, hint = error
    return ShunterError(code if code in CODES else "INTERNAL", f"host {host}: {text}", hint=hint)


class HostClient:
    """One host; safe for many threads. A lost session is replaced on the next call.

    A circuit breaker keeps a host that does not answer from holding up the others (X10): after a failure every call
    fails at once until a pause has passed, which grows with each failure in a row; then one caller tries.
    """

    def __init__(self, transport: Transport, listener: Listener | None = None) -> None:
        self.transport = transport
        self.listener = listener
        self._opening = threading.Lock()
        self._session: Session | None = None
        self._failures = 0
        self._not_before = 0.0
        self._last_error: ShunterError | None = None
        self._closed = False

    @property
    def broken_for_s(self) -> float:
        """Seconds until the host is tried again; 0 when it may be asked now."""
        return max(0.0, self._not_before - time.monotonic())

    def forget_pause(self) -> None:
        """Let the next caller try, as one may who knows that the host is back."""
        self._not_before = 0.0

    def session(self) -> Session:
        session = self._session
        if session is not None and not session.ended:
            return session
        if not self._opening.acquire(timeout=OPENING_LIMIT_S):
            raise ShunterError("HOST_UNREACHABLE", f"host {self.transport.name} is still being reached")
        try:
            if self._session is not None and not self._session.ended:
                return self._session
            if self.broken_for_s and self._last_error is not None:
                raise self._last_error
            try:
                self.transport.prepare()
                self._session = Session(self.transport, self._note, self._ended)
            except ShunterError as exc:
                self._failures += 1
                self._last_error = exc
                self._not_before = time.monotonic() + pause_s(self._failures, random.random())  # noqa: S311
                raise
            self._failures, self._not_before, self._last_error = 0, 0.0, None
            return self._session
        finally:
            self._opening.release()

    def _note(self, method: str | None, params: dict[str, Any]) -> None:
        if self.listener is not None:
            self.listener(method, params)

    def _ended(self, session: Session) -> None:
        if not self._closed:
            self._note(None, {})

    def call(self, method: str, ask: Any, *, limit_s: float | None = None) -> Any:
        """The decoded answer. Raises HOST_UNREACHABLE or DEADLINE when it is unknown whether the host acted."""
        default = ACCEPT_LIMIT_S if method in ("attempt.accept", "task.close", "attempt.publish") else CALL_LIMIT_S
        return self.session().call(method, ask, limit_s=limit_s or default)

    def end_session(self) -> None:
        """Log out and wait until that is done; the next call opens a new session."""
        session, self._session = self._session, None
        if session is not None:
            session.ended = True
            session.close()
            session.process.wait(timeout=CALL_LIMIT_S)

    def close(self) -> None:
        self._closed = True
        if self._session is not None:
            self._session.close()


def pause_s(failures: int, chance: float) -> float:
    """0.2 s after the first failure, doubled with each more, a minute at most; `chance` (0 to 1) spreads it by half."""
    return min(60.0, 0.1 * 2.0 ** min(failures, 20)) * (1 + chance / 2)
