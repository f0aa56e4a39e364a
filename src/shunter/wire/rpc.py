"""JSON-RPC 2.0 framing: one message a line, UTF-8, at most 1 MiB (design of the wire: docs/wire.md).

Pure: bytes in, bytes out. The reader accepts lines from an untrusted peer; whatever breaks a rule raises PROTOCOL.
"""

from __future__ import annotations

import json
import re
from typing import Any, Dict, NamedTuple, Optional, Tuple

from .codec import decode, encode, loads
from .errors import ShunterError
from .messages import MAGIC, PROTOCOL, Hello

MESSAGE_LIMIT = 1 << 20
NOISE_LIMIT = 1 << 16


class Incoming(NamedTuple):
    """A request (id and method), a notification (method alone) or an answer (id alone)."""

    id: Optional[int]
    method: Optional[str]
    params: Any
    result: Any
    error: Optional[Tuple[str, str, Optional[str]]]  # code, text, hint


def _line(message: Dict[str, Any]) -> bytes:
    data = json.dumps(message, separators=(",", ":")).encode() + b"\n"
    if len(data) > MESSAGE_LIMIT:
        raise ShunterError("PROTOCOL", f"a message of {len(data)} bytes is over the limit of {MESSAGE_LIMIT}")
    return data


def request(number: int, method: str, params: Any, deadline_s: float) -> bytes:
    """`deadline_s`: seconds from now after which nobody waits for the answer."""
    body = {"jsonrpc": "2.0", "id": number, "method": method, "params": encode(params), "deadline_s": deadline_s}
    return _line(body)


def notification(method: str, params: Dict[str, Any]) -> bytes:
    return _line({"jsonrpc": "2.0", "method": method, "params": params})


def answer(number: int, result: Any) -> bytes:
    return _line({"jsonrpc": "2.0", "id": number, "result": encode(result)})


def failure(number: Optional[int], error: ShunterError) -> bytes:
    data = {"code": error.code, "hint": error.hint}
    body = {"code": -32000, "message": error.text[:4096], "data": data}
    return _line({"jsonrpc": "2.0", "id": number, "error": body})


def parse(line: bytes) -> Incoming:
    """One line; raises PROTOCOL for anything that is not one well-formed message."""
    if len(line) > MESSAGE_LIMIT:
        raise ShunterError("PROTOCOL", "a message is over the limit of 1 MiB")
    try:
        body = json.loads(line)
    except (ValueError, RecursionError) as exc:
        raise ShunterError("PROTOCOL", f"not a JSON message: {line[:80]!r}") from exc
    if not isinstance(body, dict) or body.get("jsonrpc") != "2.0":
        raise ShunterError("PROTOCOL", f"not a JSON-RPC 2.0 message: {line[:80]!r}")
    unknown = set(body) - {"jsonrpc", "id", "method", "params", "result", "error", "deadline_s"}
    number, method = body.get("id"), body.get("method")
    if unknown or not (number is None or type(number) is int) or not (method is None or isinstance(method, str)):
        raise ShunterError("PROTOCOL", f"a message with unknown fields or wrong types: {line[:80]!r}")
    return Incoming(number, method, body.get("params"), body.get("result"), _error(body.get("error")))


def _error(body: Any) -> Optional[Tuple[str, str, Optional[str]]]:
    if body is None:
        return None
    if not isinstance(body, dict):
        raise ShunterError("PROTOCOL", "an error that is no object")
    data = body.get("data")
    data = data if isinstance(data, dict) else {}
    hint = data.get("hint")
    return (str(data.get("code", "INTERNAL")), str(body.get("message", "")), hint if isinstance(hint, str) else None)


def hello_line(nonce: str, hello: Hello) -> bytes:
    return f"{MAGIC} {PROTOCOL} {nonce} ".encode() + json.dumps(encode(hello)).encode() + b"\n"


def parse_hello(line: bytes, nonce: str) -> Optional[Hello]:
    """The helper's greeting, or None for a line of noise before it; raises HOST_OUTDATED for another protocol."""
    # A banner without a final newline may stand in front, whatever it says.
    found = re.search(f"{MAGIC} ([^ ]{{1,16}}) {nonce} ".encode(), line)
    if found is None:
        return None
    spoken = found.group(1).decode("ascii", "replace")
    if spoken != str(PROTOCOL):
        raise ShunterError(
            "HOST_OUTDATED", f"the host speaks protocol {spoken}, home speaks {PROTOCOL}", hint="shunter host setup"
        )
    return loads(Hello, line[found.end() :], where="hello")


def decoded(kind: Any, value: Any, where: str) -> Any:
    return decode(kind, {} if value is None else value, where=where)
