"""The client of an agent that speaks the Agent Client Protocol: one turn, from the prompt on stdin to the agent's end.

Started by the supervisor like an agent, in the workspace: permission, session ("" for a new one), command line. It
starts the command in a session of its own, so that a signal to our group ends us alone and the agent is first asked to
stop; what outlives us is the supervisor's to end, as with any agent. Stderr is the agent's. What stdout says is told in
`agents/acp.py`.

    initialize -> session/new or session/load -> session/prompt -> its answer -> stdin closed -> SIGTERM -> SIGKILL

Exit status: 0 after `end_turn`, the agent's own when it ended before its answer (128 and the number for a signal), 127
or 126 when it could not be started, 1 for anything else.
"""

from __future__ import annotations

import errno
import json
import os
import select
import signal
import subprocess
import sys
import time
from typing import Any, Callable, Dict, Iterable, List, Optional, Tuple

from .. import __version__
from ..agents.consent import Calls, answer_request
from ..agents.contract import SESSION_UNKNOWN
from ..agents.options import is_session_id
from ..agents.stream import EVENT_TEXT_BYTES, bounded, flag_at, parse_object, text_at, value_at
from .acplines import LINE_LIMIT_BYTES, Lines, LineTooLongError, Pieces, frame_of, to_line

PROTOCOL_VERSION = 1
METHOD_NOT_FOUND = -32601
CHUNK = 65536
LAST_READS = 64  # of a pipe whose agent has ended; whoever still writes is not ours
START_LIMIT_S = 180.0  # for `initialize`, which a program that speaks another language never answers
# Updates that a session with a history replays; others, such as the commands of the agent, come with an empty one too.
CONVERSATION = ("user_message_chunk", "agent_message_chunk", "agent_thought_chunk", "tool_call")
OWN_LIMIT_BYTES = 1 << 20
UNSENT_LIMIT_BYTES = 8 << 20
QUIET_S = 0.3  # without an update after session/load, until what it replays is at its end (Gemini answers before it)
REPLAY_LIMIT_S = 10.0
PAUSE_S = 1.0  # without a word, then the whole lines of a message are told
CANCEL_LIMIT_S = 3.0  # for the answer to session/prompt after session/cancel
CLOSE_LIMIT_S = 2.0  # to end by itself once its stdin is closed
TERM_LIMIT_S = 2.0


class Client:
    """One agent, one session, one prompt."""

    def __init__(self, *, prompt: str, session_id: str, permission: str, cwd: str) -> None:
        self.prompt, self.session_id, self.permission, self.cwd = prompt, session_id, permission, cwd
        self.roots = [os.path.realpath(each) for each in (cwd, os.environ.get("TMPDIR")) if each]
        self.resumes = bool(session_id)
        self.asked: Dict[int, Tuple[str, Callable[[Any], None]]] = {}  # without an answer yet, and what takes it
        self.count = 0
        self.step = "starting"  # starting, opening, replaying, working, cancelling, closing, terminated, killed
        self.deadline: Optional[float] = None
        self.replayed = 0
        self.replay_ends = 0.0
        self.prompted = self.answered = self.failed = self.ended_well = False
        self.stopping = False
        self.lines, self.pieces, self.calls = Lines(), Pieces(), Calls()
        self.last = b""
        self.unsent = bytearray()
        self.poll = select.poll()
        self.wakeup = os.pipe()

    # --- the agent's process ----------------------------------------------------------------------------------------

    def start(self, command: List[str]) -> int:
        """0, or the exit status of a shell that could not start it."""
        try:
            self.agent = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, start_new_session=True
            )
        except (OSError, ValueError) as exc:
            number = getattr(exc, "errno", None)
            self.tell(shunter="missing", program=command[0], text=getattr(exc, "strerror", None) or str(exc))
            return 127 if number == errno.ENOENT else 126
        assert self.agent.stdin is not None and self.agent.stdout is not None
        self.to_agent, self.from_agent = self.agent.stdin.fileno(), self.agent.stdout.fileno()
        self.is_open = True
        for fd in (self.to_agent, self.from_agent):
            os.set_blocking(fd, False)
        self.poll.register(self.from_agent, select.POLLIN)
        self.ask(
            "initialize",
            {
                "protocolVersion": PROTOCOL_VERSION,
                "clientCapabilities": {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False},
                "clientInfo": {"name": "shunter", "title": "shunter", "version": __version__},
            },
            self.take_initialized,
        )
        self.deadline = time.monotonic() + START_LIMIT_S
        return 0

    def catch_signals(self) -> None:
        for end in self.wakeup:
            os.set_blocking(end, False)
        signal.set_wakeup_fd(self.wakeup[1], warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, lambda *_: None)
        self.poll.register(self.wakeup[0], select.POLLIN)

    def run(self, command: List[str]) -> int:
        self.catch_signals()
        status = self.start(command)
        if status:
            return status
        while self.agent.poll() is None:
            self.wait()
        for _ in range(LAST_READS):
            if not self.is_open or not self.read():
                break
        if self.lines.rest():  # whole, but for its newline, or half a line
            self.take(self.lines.rest())
        self.flush()
        return self.exit_status(self.agent.returncode)

    def exit_status(self, returned: int) -> int:
        if self.answered or self.failed:
            return 0 if self.ended_well else 1
        if self.stopping:
            return 128 + signal.SIGTERM
        if returned == 0:
            during = self.open_request()
            self.tell(shunter="error", during=during, text=f"the agent ended before it answered {during}")
            return 1
        return returned if returned > 0 else 128 - returned

    def wait(self) -> None:
        now = time.monotonic()
        if self.deadline is not None and now >= self.deadline:
            self.pass_deadline()
            now = time.monotonic()
        left_s = 3600.0 if self.deadline is None else max(0.0, self.deadline - now)
        is_pausing = self.pieces.has_lines
        ready = self.poll.poll(int(min(left_s, PAUSE_S if is_pausing else left_s) * 1000) + 1)
        if not ready and is_pausing:
            self.write_all(self.pieces.pause())
        for fd, _ in ready:
            if fd == self.wakeup[0]:
                if signal.SIGTERM in os.read(fd, 512):
                    self.stop()
            elif fd == self.from_agent:
                self.read()
            elif self.step != "closing":
                self.send_rest()

    def pass_deadline(self) -> None:
        self.deadline = None
        if self.step == "starting":
            self.fail("initialize", text=f"the agent did not answer initialize within {START_LIMIT_S:.0f} s")
        elif self.step == "replaying":
            self.go_on()
        elif self.step == "cancelling":
            self.close()
        elif self.step == "closing":
            if not self.stopping:
                during = self.open_request()
                self.fail(during, text=f"the agent closed its output before it answered {during}")
            self.step, self.deadline = "terminated", time.monotonic() + TERM_LIMIT_S
            self.signal_agent(signal.SIGTERM)
        elif self.step == "terminated":
            self.step = "killed"
            self.signal_agent(signal.SIGKILL)

    def open_request(self) -> str:
        return next((method for method, _ in self.asked.values()), self.step)

    def signal_agent(self, number: int) -> None:
        """To its whole group, since the first process is often a wrapper; it is not reaped, so the group is its own."""
        try:
            os.killpg(self.agent.pid, number)
        except OSError:
            pass

    def stop(self) -> None:
        """SIGTERM: the turn is cancelled or its time is up."""
        if self.stopping:
            return
        self.stopping = True
        if self.step == "working":
            self.step, self.deadline = "cancelling", time.monotonic() + CANCEL_LIMIT_S
            self.tell(shunter="cancel")
            self.send({"method": "session/cancel", "params": {"sessionId": self.session_id}})
        elif self.step not in ("closing", "terminated", "killed"):
            self.close()

    def close(self) -> None:
        """What is left is the agent's end: first by itself, then by signals."""
        if self.step in ("closing", "terminated", "killed"):
            return
        self.step, self.deadline = "closing", time.monotonic() + CLOSE_LIMIT_S
        self.unsent.clear()
        self.close_stdin()

    def close_stdin(self) -> None:
        assert self.agent.stdin is not None
        if not self.agent.stdin.closed:
            self.forget(self.to_agent)
            self.agent.stdin.close()

    def forget(self, fd: int) -> None:
        try:
            self.poll.unregister(fd)
        except KeyError:
            pass

    # --- bytes ------------------------------------------------------------------------------------------------------

    def read(self) -> bool:
        """True when there may be more at once."""
        try:
            data = os.read(self.from_agent, CHUNK)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self.forget(self.from_agent)
            self.is_open = False
            self.close()  # it cannot answer any more
            return False
        try:
            for line in self.lines.feed(data):
                self.take(line)
        except LineTooLongError:
            self.fail(self.open_request(), text=f"the agent wrote a line of more than {LINE_LIMIT_BYTES >> 20} MiB")
        return True

    def send(self, message: Dict[str, Any]) -> None:
        self.unsent += to_line({"jsonrpc": "2.0", **message})
        self.send_rest()
        if len(self.unsent) > UNSENT_LIMIT_BYTES:
            self.fail(self.open_request(), text="the agent asks without reading what it is answered")

    def send_rest(self) -> None:
        """As much as the pipe takes; an agent that does not read must not keep us from reading."""
        assert self.agent.stdin is not None
        if self.agent.stdin.closed:
            self.unsent.clear()
            return
        try:
            while self.unsent:
                del self.unsent[: os.write(self.to_agent, self.unsent[:CHUNK])]
        except BlockingIOError:
            self.poll.register(self.to_agent, select.POLLOUT)
            return
        except OSError:  # it does not listen any more; how it ends will tell
            self.unsent.clear()
        self.forget(self.to_agent)

    def write_all(self, lines: Iterable[bytes]) -> None:
        for line in lines:
            self.last = b""
            write(line)

    def flush(self) -> None:
        self.write_all(self.pieces.end())

    def tell(self, **line: Any) -> None:
        self.flush()
        self.last = b""
        data = to_line(line)
        if len(data) > OWN_LIMIT_BYTES:  # an answer of an agent that is none
            data = to_line({name: bounded(value) for name, value in line.items() if isinstance(value, str)})
        write(data)

    def tell_noise(self, line: bytes) -> None:
        text = bounded(line[: 4 * EVENT_TEXT_BYTES].decode("utf-8", "replace").strip())
        if text:
            self.tell(shunter="noise", text=text)

    # --- messages ---------------------------------------------------------------------------------------------------

    def take(self, line: bytes) -> None:
        message = parse_object(line, LINE_LIMIT_BYTES)
        if message is None or "shunter" in message or not ("method" in message or "id" in message):
            self.tell_noise(line)
            return
        try:
            self.take_message(message, line)
        except RecursionError:  # what may be read need not be writable
            self.tell_noise(line)

    def take_message(self, message: Dict[str, Any], line: bytes) -> None:
        method = message.get("method")
        if not isinstance(method, str):
            self.take_answer(message)
        elif "id" in message:
            self.show(line)
            self.answer(message, method)
        elif self.resumes and not self.prompted and method == "session/update":
            self.replayed += text_at(message, "params", "update", "sessionUpdate") in CONVERSATION
            if self.step == "replaying" and not self.asked:
                self.deadline = min(self.replay_ends, time.monotonic() + QUIET_S)
        else:
            frame = frame_of(message)
            if frame is None:
                self.note(message)
                self.show(line)
            else:
                self.write_all(self.pieces.take(message, frame))

    def note(self, message: Dict[str, Any]) -> None:
        update = value_at(message, "params", "update")
        if text_at(update, "sessionUpdate") in ("tool_call", "tool_call_update"):
            self.calls.note(update)

    def show(self, line: bytes) -> None:
        """As it came, but not twice in a row (OpenCode)."""
        self.flush()
        if line != self.last:
            write(line + b"\n")
        self.last = line

    def ask(self, method: str, params: Dict[str, Any], then: Callable[[Any], None]) -> None:
        self.count += 1
        self.asked[self.count] = method, then
        self.send({"id": self.count, "method": method, "params": params})

    def take_answer(self, message: Dict[str, Any]) -> None:
        number = message.get("id")
        if isinstance(number, bool) or not isinstance(number, int) or number not in self.asked:
            return  # it was answered before, or never asked
        method, then = self.asked.pop(number)
        if self.failed:
            return
        if "error" in message:
            self.fail(method, error=message["error"])
        else:
            then(message.get("result"))

    def fail(self, during: str, **reason: Any) -> None:
        if not self.failed and not self.answered:
            self.failed = True
            self.tell(shunter="error", during=during, **reason)
        self.close()

    def take_initialized(self, result: Any) -> None:
        if self.stopping:
            return
        version = value_at(result, "protocolVersion")
        if version != PROTOCOL_VERSION or isinstance(version, bool):
            shown = "{…}" if isinstance(version, (dict, list)) else json.dumps(version)[:40]
            self.fail("initialize", text=f"the agent speaks protocolVersion {shown}, not {PROTOCOL_VERSION}")
        elif self.resumes and not flag_at(result, "agentCapabilities", "loadSession"):
            self.fail("session/load", text=f"{SESSION_UNKNOWN}: this agent cannot load a session")
        elif self.resumes:
            self.step, self.deadline = "replaying", None
            params = {"sessionId": self.session_id, "cwd": self.cwd, "mcpServers": []}
            self.ask("session/load", params, self.take_loaded)
        else:
            self.step, self.deadline = "opening", None
            self.ask("session/new", {"cwd": self.cwd, "mcpServers": []}, self.take_session)

    def take_session(self, result: Any) -> None:
        self.session_id = text_at(result, "sessionId")
        if not self.session_id:
            self.fail("session/new", text="the agent gave no session")
        elif is_session_id(self.session_id):
            self.tell(shunter="session", sessionId=self.session_id)
            self.send_prompt()
        else:
            self.tell_noise(b"the session's name is of a form that cannot be asked for again")
            self.send_prompt()

    def take_loaded(self, result: Any) -> None:
        now = time.monotonic()
        self.replay_ends, self.deadline = now + REPLAY_LIMIT_S, now + QUIET_S

    def go_on(self) -> None:
        """An agent that knows the session has replayed it; Qwen Code begins an empty one of that name instead."""
        if not self.replayed:
            self.fail("session/load", text=f"{SESSION_UNKNOWN}: the agent has nothing of the conversation")
            return
        self.tell(shunter="session", sessionId=self.session_id, replayed=self.replayed)
        self.send_prompt()

    def send_prompt(self) -> None:
        if self.stopping:
            return
        self.step, self.prompted = "working", True
        prompt = [{"type": "text", "text": self.prompt}]
        self.ask("session/prompt", {"sessionId": self.session_id, "prompt": prompt}, self.take_end)

    def take_end(self, result: Any) -> None:
        self.answered = True
        self.ended_well = text_at(result, "stopReason") == "end_turn"
        self.tell(shunter="end", result=result)
        self.close()

    def answer(self, message: Dict[str, Any], method: str) -> None:
        """Nothing is offered to the agent but an answer to its requests for permission."""
        number, params = message.get("id"), message.get("params")
        if method != "session/request_permission":
            self.tell(
                shunter="answer", to=bounded(method, 200), answer="not found", why="this client does not offer it"
            )
            self.send({"id": number, "error": {"code": METHOD_NOT_FOUND, "message": "Method not found"}})
            return
        found = answer_request(params, self.calls, permission=self.permission, is_inside=self.is_inside)
        about = bounded(text_at(params, "toolCall", "title"), 1000)
        if self.stopping or found.option_id is None:
            kind, why = "cancelled", "the turn is told to stop" if self.stopping else found.reason
            outcome = {"outcome": "cancelled"}
        else:
            kind, why = found.option_kind, found.reason
            outcome = {"outcome": "selected", "optionId": found.option_id}
        self.tell(shunter="answer", to=method, about=about, answer=kind, why=why)
        self.send({"id": number, "result": {"outcome": outcome}})

    def is_inside(self, path: str) -> bool:
        """Of the workspace or the turn's own temporary directory, links followed."""
        if "\0" in path:  # no file has such a name, and not every Python says so
            return False
        try:
            real = os.path.realpath(os.path.join(self.cwd, path))
        except (OSError, ValueError):
            return False
        return any(real == root or real.startswith(root + os.sep) for root in self.roots)


def write(data: bytes) -> None:
    """To the supervisor, which always reads; without one there is nobody to work for."""
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(1, view) :]
    except OSError:
        os._exit(1)


def main() -> None:
    """argv: permission, session or "", command line; stdin: the prompt."""
    prompt = sys.stdin.buffer.read().decode("utf-8", "replace")
    permission, session_id, *command = sys.argv[1:]
    client = Client(prompt=prompt, session_id=session_id, permission=permission, cwd=os.getcwd())
    status = client.run(command)
    sys.stdout.flush()
    os._exit(status)
