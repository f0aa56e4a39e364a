"""`shunter completion`."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from ..output import say


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the completion script of a shell.

    \b
      bash:  source <(shunter completion bash)            in ~/.bashrc
      zsh:   source <(shunter completion zsh)             in ~/.zshrc
      fish:  shunter completion fish | source             in ~/.config/fish/config.fish
    """
    from ..main import root

    kind = get_completion_class(shell)
    assert kind is not None
    say(kind(root, {}, "shunter", "_SHUNTER_COMPLETE").source())
