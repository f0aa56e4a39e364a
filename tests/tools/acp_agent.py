"""An agent that speaks the Agent Client Protocol on stdio and plays a script: for tests of the client.

    python acp_agent.py SCRIPT [FILE]

SCRIPT is JSON, `{"initialize": STEPS, "session/new": STEPS, …}`: what it does when that method comes; what is not named
is as in DEFAULT. A step is one of

    {"update": {…}}        a session/update        {"raw": "…"}      a line of stdout
    {"ends": "…"}          a line without its newline, and the end
    {"request": [m, {…}]}  a request; its answer is waited for
    {"option": n}          a request for permission with an option whose id is so long; no answer is waited for
    {"result": {…}}        the answer              {"error": {…}}    likewise
    {"later": {…}}         a session/update behind the answer, from a thread
    {"bytes": n}           n bytes without a newline
    {"large": n}           an answer with n bytes that nobody asked for
    {"exit": n}            its end                 {"signal": n}     likewise
    {"mute": true}         it closes its stdout and does nothing more
    {"hang": true}         it does nothing more and ignores its stdin
    {"deaf": true}         it ignores SIGTERM      {"child": true}   it leaves a process of another session behind

What it hears stands in FILE, one JSON object a line, behind its pid.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any

DEFAULT: dict[str, list[dict[str, Any]]] = {
    "initialize": [{"result": {"protocolVersion": 1, "agentCapabilities": {"loadSession": True}}}],
    "session/new": [{"result": {"sessionId": "s-1"}}],
    "session/load": [
        {"update": {"sessionUpdate": "user_message_chunk", "content": {"type": "text", "text": "earlier"}}},
        {"update": {"sessionUpdate": "tool_call", "title": "earlier"}},
        {"update": {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "answered"}}},
        {"result": None},
    ],
    "session/prompt": [
        {"update": {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "done"}}},
        {"result": {"stopReason": "end_turn"}},
    ],
    "session/cancel": [],
}


def say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def update(fields: dict[str, Any], session: str = "s-1") -> None:
    say({"method": "session/update", "params": {"sessionId": session, "update": fields}})


def hear() -> dict[str, Any]:
    line = sys.stdin.readline()
    if not line:
        sys.exit(0)
    if len(sys.argv) > 2:
        with open(sys.argv[2], "a") as file:
            file.write(line)
    heard: dict[str, Any] = json.loads(line)
    return heard


def play(step: dict[str, Any], heard: dict[str, Any]) -> None:
    ((kind, value),) = step.items()
    session = (heard.get("params") or {}).get("sessionId", "s-1")
    if kind == "update":
        update(value, session)
    elif kind == "later":
        threading.Timer(0.1, update, [value, session]).start()
    elif kind in ("result", "error"):
        say({"id": heard["id"], kind: value})
    elif kind == "request":
        say({"id": "r", "method": value[0], "params": value[1]})
        hear()
    elif kind == "option":
        options = [{"optionId": "x" * value, "kind": "allow_once", "name": "yes"}]
        say({"id": "o", "method": "session/request_permission", "params": {"toolCall": {}, "options": options}})
    elif kind == "ends":
        sys.stdout.write(step["ends"])
        sys.stdout.flush()
        os._exit(0)
    elif kind == "raw":
        sys.stdout.buffer.write(value.encode("utf-8", "surrogateescape") + b"\n")
        sys.stdout.buffer.flush()
    elif kind == "large":
        say({"id": heard["id"], "result": {"stopReason": "end_turn", "_meta": "x" * value}})
    elif kind == "bytes":
        for _ in range(value // 65536):
            sys.stdout.buffer.write(b"x" * 65536)
        sys.stdout.buffer.flush()
    elif kind == "exit":
        os._exit(value)
    elif kind == "signal":
        os.kill(os.getpid(), value)
    elif kind == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    elif kind == "child":
        subprocess.Popen(["sleep", "1000"], start_new_session=True)
    elif kind in ("hang", "mute"):
        if kind == "mute":
            os.close(1)
        while True:
            time.sleep(1000)


def main() -> None:
    script = {**DEFAULT, **json.loads(sys.argv[1])}
    if len(sys.argv) > 2:
        with open(sys.argv[2], "a") as file:
            file.write(f"{os.getpid()}\n")
    prompt: dict[str, Any] = {}
    while True:
        heard = hear()
        method = heard.get("method", "")
        prompt = heard if method == "session/prompt" else prompt
        for step in script.get(method, []):
            play(step, prompt if method == "session/cancel" else heard)


if __name__ == "__main__":
    main()
