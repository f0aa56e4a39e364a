from __future__ import annotations

import subprocess
import sys

import pytest

from shunter.agents.table import MODULES, known_names, load, parse_name
from shunter.wire.errors import ShunterError

FUNCTIONS = {"launch", "read_event", "find_outcome", "version_argv", "prepare_prompt", "sandbox_programs", "auth_check"}


@pytest.mark.parametrize("name", [*MODULES, "exec:make -j2", "acp:opencode acp"])
def test_a_known_name_gives_a_whole_adapter(name: str) -> None:
    adapter = load(name)
    own = {key for key, value in vars(adapter).items() if getattr(value, "__module__", None) == adapter.__name__}  # type: ignore[attr-defined]
    assert {key for key in own if not key.startswith("_")} == FUNCTIONS


@pytest.mark.parametrize("name", ["", "Codex", "codex:x", "acpx:y", "codex ", "../claude", "os", "exe"])
def test_an_unknown_name_is_refused_with_the_known_ones(name: str) -> None:
    with pytest.raises(ShunterError) as caught:
        load(name)
    assert caught.value.code == "AGENT_UNKNOWN"
    assert caught.value.hint == f"known are {', '.join(known_names())}"


def test_a_command_line_is_split_like_a_shell_does() -> None:
    assert parse_name("""exec:sh -c 'cat > "a b"' $HOME""").command == ("sh", "-c", 'cat > "a b"', "$HOME")
    assert parse_name("exec:a:b").command == ("a:b",)
    assert parse_name("acp:npx 'an agent' --acp") == ("acp", ("npx", "an agent", "--acp"))
    assert parse_name("codex") == ("codex", ())


@pytest.mark.parametrize("name", ["exec:", "exec:  ", "exec:'a", "exec:a\\", "acp:", "acp:'a"])
def test_a_command_line_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(ShunterError) as caught:
        parse_name(name)
    assert caught.value.code == "AGENT_OPTION"


def test_one_agent_does_not_load_another() -> None:
    code = "import sys; from shunter.agents.table import load; load('exec:true'); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=30).stdout
    assert "shunter.agents.exec" in loaded
    assert not [name for name, module in MODULES.items() if name != "exec" and module in loaded.split()]


def test_every_known_name_is_in_the_table() -> None:
    assert [name.partition(":")[0] for name in known_names()] == sorted(MODULES)
