"""Origins for tests: a bare repository behind real git servers, over HTTP with passwords and over ssh with keys.

HTTP is `git http-backend` behind a small server on loopback; ssh is `sshd -i` (see ssh_lab). Both reach the same kind
of repository, whose hooks a test may write.
"""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from e2e_world import World
from ssh_lab import Lab, run

BACKEND = Path(
    subprocess.run(["git", "--exec-path"], capture_output=True, text=True, check=True).stdout.strip(),
    "git-http-backend",
)


class Origin:
    """A bare repository; `url` is how the world's account reaches it, `capability` what a host is tagged with."""

    url: str
    capability: str

    def __init__(self, world: World, bare: Path) -> None:
        self.world, self.bare = world, bare
        world.git("init", "-q", "--bare", "-b", "main", str(bare))
        world.git("push", "-q", str(bare), "main")

    def take_in(self) -> None:
        """The world's project has it as origin, and its host is declared to work with it."""
        self.world.git("remote", "add", "origin", self.url)
        self.take_in_again()

    def take_in_again(self) -> None:
        """Declare the host of a configuration that was written anew."""
        text = self.world.config.read_text()
        self.world.config.write_text(text.replace("slots =", f'tags = ["{self.capability}"]\nslots =', 1))

    def git(self, *words: str) -> str:
        return self.world.git("-c", "safe.directory=*", *words, cwd=self.bare)

    def branches(self) -> dict[str, str]:
        listed = self.git("for-each-ref", "--format=%(refname:short) %(objectname)", "refs/heads")
        return dict(line.split() for line in listed.splitlines())

    def all_refs(self) -> list[str]:
        return self.git("for-each-ref", "--format=%(refname)").splitlines()

    def hook(self, script: str, name: str = "pre-receive") -> None:
        path = self.bare / "hooks" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("#!/bin/sh\n" + script)
        path.chmod(0o755)

    def commit(self, branch: str, *, parent: str = "main", name: str = "theirs") -> str:
        """Somebody else's commit on a branch there; without a parent it begins a history of its own."""
        author = ("-c", "user.name=Other", "-c", "user.email=o@example.org")
        on_top = ("-p", parent) if parent else ()
        oid = self.git(*author, "commit-tree", *on_top, "-m", name, "main^{tree}")
        self.git("update-ref", f"refs/heads/{branch}", oid)
        return oid

    def close(self) -> None:
        pass


class HttpOrigin(Origin):
    """`passwords` are who may read; who is in `writers` may push as well."""

    def __init__(self, world: World) -> None:
        self.projects = world.root / "srv"
        self.projects.mkdir()
        super().__init__(world, self.projects / "origin.git")
        self.passwords = {"robot": "s3cret-of-robot"}
        self.writers = {"robot"}
        self.wrote: set[str] = set()
        self.port = 0
        self.server: ThreadingHTTPServer | None = None
        self.come_back()
        self.url = f"http://127.0.0.1:{self.port}/origin.git"
        self.capability = f"origin:127.0.0.1:{self.port}"
        self.credentials = world.home / ".git-credentials"
        (world.home / ".gitconfig").write_text(f"[credential]\n\thelper = store --file={self.credentials}\n")
        self.sign_in("robot")

    def sign_in(self, user: str) -> None:
        self.credentials.write_text(f"http://{user}:{self.passwords[user]}@127.0.0.1:{self.port}\n")
        self.credentials.chmod(0o600)

    def vanish(self) -> None:
        assert self.server is not None
        self.server.shutdown()
        self.server.server_close()
        self.server = None

    def come_back(self) -> None:
        origin = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                origin.answer(self)

            do_POST = do_GET

            def log_message(self, *_: object) -> None:
                pass

        ThreadingHTTPServer.allow_reuse_address = True
        self.server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_port
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def answer(self, asked: BaseHTTPRequestHandler) -> None:
        path, _, query = asked.path.partition("?")
        body = asked.rfile.read(int(asked.headers.get("Content-Length") or 0))
        given = asked.headers.get("Authorization", "").removeprefix("Basic ")
        user, _, password = base64.b64decode(given).decode().partition(":")
        writes = "git-receive-pack" in path + query
        if not user or self.passwords.get(user) != password:
            return self.reply(asked, 401, [("WWW-Authenticate", 'Basic realm="lab"')], b"who are you?\n")
        if writes and user not in self.writers:
            return self.reply(asked, 403, [], b"reading only\n")
        if writes:
            self.wrote.add(user)
        env = {
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": str(self.projects),
            "GIT_HTTP_EXPORT_ALL": "1",
            "GIT_CONFIG_NOSYSTEM": "1",
            "HOME": "/nonexistent",
            "REQUEST_METHOD": asked.command,
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "CONTENT_TYPE": asked.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": asked.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": asked.headers.get("Git-Protocol", ""),
            "REMOTE_USER": user,
        }
        done = subprocess.run([str(BACKEND)], input=body, env=env, capture_output=True, timeout=60)
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        fields = [tuple(line.decode().split(": ", 1)) for line in head.split(b"\r\n") if line]
        status = next((int(value.split()[0]) for name, value in fields if name == "Status"), 200)
        return self.reply(asked, status, [each for each in fields if each[0] != "Status"], content)

    def reply(self, asked: BaseHTTPRequestHandler, status: int, fields: list, content: bytes) -> None:
        try:
            asked.send_response(status)
            for name, value in fields:
                asked.send_header(name, value)
            asked.send_header("Content-Length", str(len(content)))
            asked.end_headers()
            asked.wfile.write(content)
        except OSError:
            pass  # whoever asked was killed meanwhile

    def close(self) -> None:
        if self.server is not None:
            self.vanish()


class SshOrigin(Origin):
    """On an account of its own when the tests run as root; the world's account has a key for it."""

    def __init__(self, world: World) -> None:
        # Not below pytest's directory, which other accounts may not enter.
        self.shared = Path(tempfile.mkdtemp(prefix="shunter-origin-"))
        self.shared.chmod(0o755)
        self.lab = Lab(self.shared / "lab")
        self.host = self.lab.add("forge")
        super().__init__(world, self.host.home / "origin.git")
        self.own()
        # ssh reads the password database's home and not HOME, so git is told where its configuration is.
        (world.home / ".gitconfig").write_text(f"[core]\n\tsshCommand = ssh -F {self.lab.config}\n")
        self.url = "forge:origin.git"
        self.capability = "origin:forge"

    def own(self) -> None:
        if self.host.is_own_user:
            run("chown", "-R", self.host.user, str(self.bare))

    def vanish(self) -> None:
        self.host.vanish("sh -c 'echo down >&2; exit 1'")

    def come_back(self) -> None:
        self.host.come_back()

    def close(self) -> None:
        self.lab.close()
        shutil.rmtree(self.shared, ignore_errors=True)
