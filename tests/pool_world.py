"""A pool of one end-to-end test: home, and hosts reached by a real sshd."""

from __future__ import annotations

import shlex
import shutil
import tempfile
import tomllib
from pathlib import Path

import pytest
from e2e_world import World
from ssh_lab import Lab, LabHost


class Pool:
    """Home and its hosts. As an ordinary user all hosts are one account, so each gets a data root of its own."""

    def __init__(self, root: Path) -> None:
        self.world = World(root)
        # Not below pytest's directory: whenever a pytest starts it closes that to other accounts.
        self.shared = Path(tempfile.mkdtemp(prefix="shunter-lab-"))
        self.shared.chmod(0o755)
        self.lab = Lab(self.shared / "lab")
        self.world.config.write_text("[limits]\nterm_grace_s = 1\nquiet_s = 1\nbackground_grace_s = 1\n")

    def a_host(self, name: str, shell: str = "bash", **options: str) -> LabHost:
        path = shutil.which(shell)
        if path is None:
            pytest.skip(f"no {shell} here")
        return self.lab.add(name, shell=path, **options)

    def root_of(self, host: LabHost) -> Path:
        return host.home / (".local/share/shunter" if host.is_own_user else "data")

    def add(self, host: LabHost, *words: str, status: int | None = 0):
        place = () if host.is_own_user or "--data-root" in words else ("--data-root", str(self.root_of(host)))
        command = shlex.join(self.lab.ssh_command)
        return self.world.run("host", "add", host.name, "--ssh-command", command, *place, *words, status=status)

    def hosts(self, *words: str) -> dict[str, dict]:
        return {each["name"]: each for each in self.world.json("hosts", *words)}

    def entries(self) -> list[dict]:
        return tomllib.loads(self.world.config.read_text()).get("hosts", [])

    def without_local(self) -> None:
        text = self.world.config.read_text()
        self.world.config.write_text(text.replace('name = "local"', 'name = "local"\nenabled = false'))

    def close(self) -> None:
        self.world.close()
        self.lab.close()
        shutil.rmtree(self.shared, ignore_errors=True)


def text_of(done) -> str:
    return (done.stdout + done.stderr).decode()
