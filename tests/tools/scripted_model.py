"""A small model server that plays scripts, so that real agent CLIs can be tried without a network and without a model.

Speaks what Codex (OpenAI Responses), Claude Code (Anthropic Messages), OpenCode, Qwen Code and Copilot (OpenAI Chat
Completions) and Gemini CLI (generateContent) need, on 127.0.0.1 only. The script is chosen
by the base URL, `http://127.0.0.1:PORT/s/<script>`, so nothing is kept between requests and many agents can run at
once. A script is a list of steps; the one to play is the number of tool results since the last message of the user
(the last step, when there are more), so a resumed conversation starts its script anew. A step is one of

    {"shell": "command"}                      a call of the agent's own shell tool
    {"tool": "Write", "input": {...}}         a call of just that tool
    {"text": "..."}                           the final message; with a schema, an instance of it holding the text
    {"result": {...}}                         the final message; with a schema, exactly this object
                                              (asked for a `shunter-result` block, the message ends with one)
    {"status": 429, "body": {}, "headers": {}}  an HTTP error
    {"cut": true}                             half an answer, then the connection is dropped

and may also hold `"delay_s"`. Requests without tools (a title, say) get a short text and never an error.

    python scripted_model.py --port 0 [--scripts more.json]      prints its URL; `GET /_log` gives the requests so far
"""

from __future__ import annotations

import argparse
import json
import re
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

Step = dict[str, Any]
COMMIT = "echo 'hello from the script' >> scripted.txt && git add scripted.txt && git commit -q -m 'scripted commit'"
QUESTION = {"text": "Which one?", "options": ["left", "right"]}
IN_AN_HOUR = "<in an hour>"  # becomes that time, in Unix seconds, when the answer is sent
LIMIT_NOTICE = f"Claude AI usage limit reached|{IN_AN_HOUR}"
SCRIPTS: dict[str, list[Step]] = {
    "commit": [{"shell": COMMIT}, {"text": "The file is committed."}],
    "leave": [{"shell": "echo left >> left.txt"}, {"text": "The file is written."}],
    "talk": [{"text": "Nothing was to be done."}],
    "ask": [
        {"result": {"status": "needs_input", "summary": "Two ways.", "questions": [QUESTION], "files_changed": []}}
    ],
    "fail": [{"shell": "echo broken >&2; exit 7"}, {"text": "The command failed."}],
    "loop": [{"shell": "echo again"}],
    "slow": [{"shell": "echo begun; python3 -c 'import time; time.sleep(600)'"}, {"text": "Slept."}],
    "hang": [{"text": "late", "delay_s": 600}],
    "cut": [{"cut": True}],
    "openai-401": [
        {"status": 401, "body": {"error": {"message": "Incorrect API key provided.", "code": "invalid_api_key"}}}
    ],
    "openai-limit": [
        {
            "status": 429,
            "body": {
                "error": {
                    "type": "usage_limit_reached",
                    "message": "The usage limit has been reached",
                    "plan_type": "plus",
                    "resets_at": IN_AN_HOUR,
                }
            },
        }
    ],
    "chat-limit": [
        {
            "status": 429,
            "headers": {"retry-after-ms": "50"},
            "body": {
                "error": {"type": "usage_limit_reached", "message": "The usage limit has been reached. Resets in 1h."}
            },
        }
    ],
    "chat-balance": [
        {"status": 402, "body": {"error": {"message": "Insufficient Balance", "code": "invalid_request_error"}}}
    ],
    "gemini-limit": [
        {
            "status": 429,
            "body": {
                "error": {
                    "code": 429,
                    "status": "RESOURCE_EXHAUSTED",
                    "message": "You exceeded your current quota.",
                    "details": [
                        {
                            "@type": "type.googleapis.com/google.rpc.QuotaFailure",
                            "violations": [{"quotaId": "GenerateRequestsPerDayPerProjectPerModel"}],
                        }
                    ],
                }
            },
        }
    ],
    "openai-500": [{"status": 500, "body": {"error": {"message": "The server had an error", "type": "server_error"}}}],
    "anthropic-401": [
        {
            "status": 401,
            "body": {"type": "error", "error": {"type": "authentication_error", "message": "invalid x-api-key"}},
        }
    ],
    "anthropic-limit": [
        {
            "status": 429,
            "headers": {"x-should-retry": "false"},
            "body": {
                "type": "error",
                "error": {"type": "rate_limit_error", "message": LIMIT_NOTICE},
            },
        }
    ],
    "anthropic-529": [
        {"status": 529, "body": {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}}
    ],
}
SHELL_TOOLS = {
    "exec_command": "cmd",
    **dict.fromkeys(("shell_command", "shell", "Bash", "bash", "run_shell_command"), "command"),
}
# What the CLIs put into the conversation beside the words of the user.
ADDED = (
    *("<environment_context>", "<system-reminder>", "<permissions", "<skills", "<user_instructions>", "# AGENTS.md"),
    *("<session_context>", "This is the Qwen Code."),
)


@dataclass
class Asked:
    """One request for an answer, in a form that the interfaces share."""

    script: str
    api: str  # responses, messages, chat or gemini
    model: str
    users: list[str]  # what the user said, in order
    tools: dict[str, Any]  # name to the schema of its input
    schema: dict[str, Any] | None  # the schema that the final message must have
    results: int = 0  # tool results since the last word of the user
    stream: bool = True

    def hear(self, text: str) -> None:
        if text.strip() and not text.strip().startswith(ADDED):
            self.users.append(text)
            self.results = 0

    def wants_block(self) -> bool:
        return bool(self.users) and "```shunter-result" in self.users[-1]


def read_responses(script: str, body: dict[str, Any]) -> Asked:
    tools = {tool.get("name"): tool.get("parameters") for tool in body.get("tools", [])}
    schema = body.get("text", {}).get("format", {}).get("schema")
    asked = Asked(script, "responses", body.get("model", ""), [], tools, schema, stream=bool(body.get("stream")))
    for item in body.get("input", []):
        if item.get("type", "").endswith("_output"):
            asked.results += 1
        elif item.get("role") == "user":
            asked.hear("\n".join(part.get("text", "") for part in item["content"]))
    return asked


def read_messages(script: str, body: dict[str, Any]) -> Asked:
    tools = {tool.get("name"): tool.get("input_schema") for tool in body.get("tools", [])}
    schema = tools.pop("StructuredOutput", None)
    asked = Asked(script, "messages", body.get("model", ""), [], tools, schema, stream=bool(body.get("stream")))
    for message in body.get("messages", []):
        parts = message["content"]
        parts = [{"type": "text", "text": parts}] if isinstance(parts, str) else parts
        if message["role"] == "user":
            asked.results += sum(part["type"] == "tool_result" for part in parts)
            for part in parts:
                asked.hear(part.get("text", ""))
    return asked


def read_chat(script: str, body: dict[str, Any]) -> Asked:
    functions = [tool["function"] for tool in body.get("tools", []) if "function" in tool]
    tools = {function["name"]: function.get("parameters") for function in functions}
    schema = tools.pop("structured_output", None)
    asked = Asked(script, "chat", body.get("model", ""), [], tools, schema, stream=bool(body.get("stream")))
    for message in body.get("messages", []):
        parts = message.get("content") or []
        parts = [{"text": parts}] if isinstance(parts, str) else parts
        if message["role"] == "tool":
            asked.results += 1
        elif message["role"] == "user":
            for part in parts:
                asked.hear(part.get("text", ""))
    return asked


def read_gemini(script: str, body: dict[str, Any]) -> Asked:
    functions = [each for tool in body.get("tools", []) for each in tool.get("functionDeclarations", [])]
    tools = {each["name"]: each.get("parametersJsonSchema") or each.get("parameters") for each in functions}
    asked = Asked(script, "gemini", body.get("model", ""), [], tools, None)
    for content in body.get("contents", []):
        if content.get("role") == "user":
            for part in content["parts"]:
                asked.results += "functionResponse" in part
                asked.hear(part.get("text", ""))
    return asked


def make_instance(schema: dict[str, Any], text: str) -> Any:
    """The smallest value that the schema lets pass, with the text for every string."""
    if "enum" in schema:
        return schema["enum"][0]
    kind = schema.get("type")
    if kind == "object":
        return {name: make_instance(inner, text) for name, inner in schema.get("properties", {}).items()}
    return {"array": [], "integer": 1, "number": 1.5, "boolean": True}.get(kind, text)  # type: ignore[arg-type]


@dataclass
class Answer:
    """A text or a call of a tool (then `name` is set)."""

    text: str = ""
    name: str = ""
    input: dict[str, Any] | None = None


def choose_answer(asked: Asked, step: Step) -> Answer:
    if "tool" in step:
        return Answer(name=step["tool"], input=step["input"])
    if "shell" in step:
        name = next((name for name in SHELL_TOOLS if name in asked.tools), None)
        if name is None:
            return Answer(f"there is no shell among {', '.join(asked.tools)}")
        key = SHELL_TOOLS[name]
        wanted = asked.tools[name] or {}
        as_list = wanted.get("properties", {}).get(key, {}).get("type") == "array"
        others = {
            each: make_instance(wanted["properties"][each], "for the test")
            for each in wanted.get("required", ())
            if each != key
        }
        return Answer(name=name, input={**others, key: ["bash", "-c", step["shell"]] if as_list else step["shell"]})
    text = step.get("text") or json.dumps(step.get("result", "half an answer"))
    if asked.schema is None:
        return Answer(with_block(text, step.get("result")) if asked.wants_block() else text)
    value = step.get("result") or make_instance(asked.schema, text)
    if asked.api == "responses":
        return Answer(json.dumps(value))
    return Answer(name="StructuredOutput" if asked.api == "messages" else "structured_output", input=value)


def with_block(text: str, result: dict[str, Any] | None) -> str:
    """What a model does that was told how to end its last message."""
    said = result or {"status": "done", "summary": text, "questions": [], "files_changed": []}
    return f"{text}\n\n```shunter-result\n{json.dumps(said)}\n```\n"


# By the end of the path. Claude Code and Qwen Code hand their schema to the model as a tool.
READERS = {
    "responses": read_responses,
    "messages": read_messages,
    "completions": read_chat,
    "enerateContent": read_gemini,
}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, *_: Any) -> None:
        """The requests are kept in memory instead."""

    def do_HEAD(self) -> None:
        self._send(200, b"")

    def do_GET(self) -> None:
        if self.path == "/_log":
            self._send(200, "".join(json.dumps(asdict(asked)) + "\n" for asked in self.server.asked).encode())
        else:
            self._send(404, b"{}")

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        found = re.match(
            r"/s/([^/]+)/.*?(responses|messages|completions|enerateContent|ount_?[tT]okens)(\?|$)", self.path
        )
        if not found or found[2] not in READERS:
            self._send(200 if found else 404, b'{"input_tokens": 1, "totalTokens": 1}')
            return
        asked = READERS[found[2]](found[1], json.loads(raw))
        if asked.api == "gemini":
            asked.model = self.path.partition("/models/")[2].partition(":")[0]
        script = self.server.scripts[asked.script]
        step = script[min(asked.results, len(script) - 1)] if asked.tools else {"text": "A title"}
        self.server.asked.append(asked)
        self.server.over.wait(step.get("delay_s", 0))
        if "status" in step:
            until = str(int(time.time()) + 3600)
            body = json.dumps(step["body"]).replace(f'"{IN_AN_HOUR}"', until).replace(IN_AN_HOUR, until)
            self._send(step["status"], body.encode(), step.get("headers", {}))
            return
        write = {
            "responses": self._write_responses,
            "messages": self._write_messages,
            "chat": self._write_chat,
            "gemini": self._write_gemini,
        }
        try:
            write[asked.api](asked, choose_answer(asked, step), cut="cut" in step)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True  # the agent was killed or has had enough

    def _send(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _open_stream(self) -> Callable[..., None]:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True

        def write(kind: str = "", **fields: Any) -> None:
            named = (
                f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}"
                if kind
                else f"data: {json.dumps(fields)}"
            )
            self.wfile.write(f"{named}\n\n".encode())
            self.wfile.flush()

        return write

    def _drop(self) -> None:
        self.connection.shutdown(socket.SHUT_RDWR)

    def _write_responses(self, asked: Asked, answer: Answer, *, cut: bool) -> None:
        number = len(self.server.asked)
        item: dict[str, Any] = {"id": f"item_{number}", "status": "completed"}
        if answer.name:
            call = {"call_id": f"call_{number}", "name": answer.name, "arguments": json.dumps(answer.input)}
            item |= {"type": "function_call", **call}
        else:
            content = [{"type": "output_text", "text": answer.text, "annotations": []}]
            item |= {"type": "message", "role": "assistant", "content": content}
        usage = {"input_tokens": 100, "input_tokens_details": {"cached_tokens": 10}, "output_tokens": 20}
        response = {"id": f"resp_{number}", "object": "response", "model": asked.model, "output": []}
        write = self._open_stream()
        write("response.created", response={**response, "status": "in_progress"})
        write("response.output_item.added", output_index=0, item={**item, "status": "in_progress"})
        if cut:
            self._drop()
            return
        write("response.output_item.done", output_index=0, item=item)
        done = {"status": "completed", "output": [item], "usage": {**usage, "total_tokens": 120}}
        write("response.completed", response={**response, **done})

    def _write_messages(self, asked: Asked, answer: Answer, *, cut: bool) -> None:
        number = len(self.server.asked)
        if answer.name:
            block: dict[str, Any] = {"type": "tool_use", "id": f"toolu_{number}", "name": answer.name, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(answer.input)}
        else:
            block, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": answer.text}
        stop = {"stop_reason": "tool_use" if answer.name else "end_turn", "stop_sequence": None}
        usage = {
            "input_tokens": 100,
            "cache_read_input_tokens": 10,
            "cache_creation_input_tokens": 5,
            "output_tokens": 1,
        }
        message = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": asked.model, "usage": usage}
        if not asked.stream:  # how Claude Code tries again after a cut stream
            whole = {**block, "input": answer.input} if answer.name else {**block, "text": answer.text}
            self._send(200, json.dumps({**message, "content": [whole], **stop}).encode())
            return
        write = self._open_stream()
        write("message_start", message={**message, "content": [], "stop_reason": None, "stop_sequence": None})
        write("content_block_start", index=0, content_block=block)
        write("content_block_delta", index=0, delta=delta)
        if cut:
            self._drop()
            return
        write("content_block_stop", index=0)
        write("message_delta", delta=stop, usage={"output_tokens": 20})
        write("message_stop")

    def _write_chat(self, asked: Asked, answer: Answer, *, cut: bool) -> None:
        number = len(self.server.asked)
        base = {"id": f"chatcmpl-{number}", "created": 1, "model": asked.model}
        usage = {
            "prompt_tokens": 100,
            "prompt_tokens_details": {"cached_tokens": 10},
            "completion_tokens": 20,
            "total_tokens": 120,
        }
        said: dict[str, Any] = {"role": "assistant", "content": answer.text}
        if answer.name:
            call = {"name": answer.name, "arguments": json.dumps(answer.input)}
            said = {
                "role": "assistant",
                "tool_calls": [{"index": 0, "id": f"call_{number}", "type": "function", "function": call}],
            }
        why = "tool_calls" if answer.name else "stop"
        if not asked.stream:
            choices = [{"index": 0, "message": said, "finish_reason": why}]
            self._send(
                200, json.dumps({**base, "object": "chat.completion", "choices": choices, "usage": usage}).encode()
            )
            return
        write = self._open_stream()
        write(**base, object="chat.completion.chunk", choices=[{"index": 0, "delta": said, "finish_reason": None}])
        if cut:
            self._drop()
            return
        write(**base, object="chat.completion.chunk", choices=[{"index": 0, "delta": {}, "finish_reason": why}])
        write(**base, object="chat.completion.chunk", choices=[], usage=usage)
        self.wfile.write(b"data: [DONE]\n\n")

    def _write_gemini(self, asked: Asked, answer: Answer, *, cut: bool) -> None:
        part: dict[str, Any] = {"text": answer.text}
        if answer.name:
            part = {"functionCall": {"name": answer.name, "args": answer.input, "id": f"fc-{len(self.server.asked)}"}}
        content = {"role": "model", "parts": [part]}
        usage = {
            "promptTokenCount": 100,
            "cachedContentTokenCount": 10,
            "candidatesTokenCount": 20,
            "totalTokenCount": 120,
        }
        whole = {"candidates": [{"content": content, "finishReason": "STOP", "index": 0}], "usageMetadata": usage}
        if ":streamGenerateContent" not in self.path:
            self._send(200, json.dumps(whole).encode())
            return
        write = self._open_stream()
        if cut:
            self._drop()
            return
        write(**whole)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, port: int, scripts: dict[str, list[Step]]) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.scripts = {**SCRIPTS, **scripts}
        self.asked: list[Asked] = []
        self.over = threading.Event()  # ends every wait of a step


class ScriptedModel:
    """The server as a context manager: `with ScriptedModel() as model: … model.url("commit") … model.requests`."""

    def __init__(self, scripts: dict[str, list[Step]] | None = None, *, port: int = 0) -> None:
        self._server = _Server(port, scripts or {})
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    def url(self, script: str) -> str:
        """The base URL that plays a script; every CLI adds its own path to it."""
        if script not in self._server.scripts:
            raise KeyError(script)
        return f"{self.root}/s/{script}"

    def play(self, script: str, other: str) -> None:
        """From now on the URL of a script plays another one."""
        self._server.scripts[script] = self._server.scripts[other]

    @property
    def root(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def requests(self) -> list[Asked]:
        return list(self._server.asked)

    def __enter__(self) -> ScriptedModel:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.over.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def main() -> None:
    parser = argparse.ArgumentParser(description="A model server that plays scripts.")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--scripts", type=Path, help="JSON file: script name to list of steps")
    options = parser.parse_args()
    scripts = json.loads(options.scripts.read_text()) if options.scripts else {}
    with ScriptedModel(scripts, port=options.port) as model:
        print(model.root, flush=True)
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            pass


if __name__ == "__main__":
    main()
