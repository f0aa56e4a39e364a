"""How a host is reached. Nothing above this file knows whether a host is this machine.

A transport says which command opens a session of the helper, and how git names a mirror and the programs at its other
end. Both commands are one shell line, because that is what git and ssh take.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Protocol

from ..wire.errors import ShunterError
from .helper import build_helper, install_helper


class Transport(Protocol):
    """`name` is the host's; `prepare` makes the helper available and may take its time; the rest connects
    to nobody.
    """

    name: str

    def prepare(self) -> None: ...

    def session_argv(self, nonce: str) -> list[str]: ...

    def mirror_url(self, path: str) -> str: ...

    def pack_command(self, *words: str) -> str: ...

    def ssh_command(self) -> str | None:
        """For git; None where no ssh is needed."""

    def heard_noise(self) -> None:
        """Something was printed before the helper greeted; git has to be spared that too."""

    def failure(self, status: int | None, output: bytes) -> ShunterError:
        """What it means that the command ended with this status before the helper greeted."""


class LocalTransport:
    """This machine, through the same helper and the same wire as any other."""

    def __init__(self, name: str, data_root: Path, python: str | None = None) -> None:
        self.name = name
        self.data_root = data_root
        # sys.executable of a virtual environment is a link; its target starts without looking for site-packages.
        self.python = python or str(Path(sys.executable).resolve())
        self._program: tuple[str, ...] = ()

    def prepare(self) -> None:
        if not self._program:
            path = install_helper(build_helper(), self.data_root / "bin")
            self._program = (self.python, "-I", "-S", str(path))

    def session_argv(self, nonce: str) -> list[str]:
        return [*self._program, "serve", "--data-root", str(self.data_root), "--nonce", nonce]

    def mirror_url(self, path: str) -> str:
        return path

    def pack_command(self, *words: str) -> str:
        program, *options = words
        return shlex.join([*self._program, program, "--data-root", str(self.data_root), *options])

    def ssh_command(self) -> str | None:
        return None

    def heard_noise(self) -> None:
        pass

    def failure(self, status: int | None, output: bytes) -> ShunterError:
        said = output[-300:].decode("utf-8", "replace").strip()
        return ShunterError("HOST_UNREACHABLE", f"host {self.name}: its helper did not greet: {said or 'no output'}")
