"""The agent's environment: the account's own, a profile, what shunter adds, and nothing of whoever asked (T17)."""

from __future__ import annotations

import os
import pwd
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from shunter.host import environment
from shunter.host.layout import Layout

from .world import World, code_of, environment_of, is_alive, until

DUMP = (sys.executable, "-I", "-S", "-c", "import os; print(repr(dict(os.environ)))")
SECRETS = {
    "FOO_SECRET": "s3cret",
    "SSH_AUTH_SOCK": "/tmp/agent.sock",
    "GIT_DIR": "/nowhere",
    "GIT_CONFIG_GLOBAL": "/nowhere",
    "PYTHONPATH": "/nowhere",
    "LD_LIBRARY_PATH": "/nowhere",
    "SHUNTER_ATTEMPT": "outer-1-aaaaaa",
    "AWS_SECRET_ACCESS_KEY": "s3cret",
}


def environment_seen(world: World, **options: Any) -> dict[str, str]:
    attempt, status = world.run(*DUMP, **options)
    assert status.end is not None and status.end.exit_code == 0, status
    found = eval(world.read_log(attempt)[0])
    assert isinstance(found, dict)
    return found


def test_nothing_of_the_callers_session_reaches_the_agent(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SECRETS.items():
        if not name.startswith("GIT_"):
            monkeypatch.setenv(name, value)
    world.client.session()  # the helper starts with them
    for name in SECRETS:
        monkeypatch.delenv(name, raising=False)
    seen = environment_seen(world, env={"ADDED": "{workspace}/x"})
    own = {name for name in seen if name.startswith("SHUNTER_")}
    assert own == {"SHUNTER_TASK", "SHUNTER_TURN", "SHUNTER_ATTEMPT", "SHUNTER_WORKSPACE"}
    assert not (set(SECRETS) - {"SHUNTER_ATTEMPT"}) & set(seen)
    assert "s3cret" not in str(seen) and "/nowhere" not in str(seen)
    attempt = world.attempts[-1]
    assert seen["SHUNTER_ATTEMPT"] == attempt.id and seen["SHUNTER_TURN"] == attempt.spec.job_id
    assert seen["SHUNTER_WORKSPACE"] == str(world.workspace(attempt))
    assert seen["ADDED"] == str(world.workspace(attempt) / "x")
    assert seen["HOME"] == os.environ["HOME"]


def test_our_own_programs_do_not_carry_the_callers_tag(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Home may run inside a turn; its supervisors belong to their own attempt, not to that one."""
    monkeypatch.setenv("SHUNTER_ATTEMPT", "outer-1-aaaaaa")
    attempt = world.start("sleep", "600")
    world.wait(attempt, "launched")
    assert not any(pair.startswith(b"SHUNTER_") for pair in environment_of(world.supervisor(attempt)["pid"]))
    world.cancel(attempt)
    world.wait(attempt)


# --- profiles -------------------------------------------------------------------------------------------------------


def a_profile(home: Path, text: str, mode: int = 0o600, name: str = "work") -> Path:
    path = home / ".config" / "shunter" / "env" / f"{name}.env"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


def test_a_profile_is_added(world: World, user_home: Path) -> None:
    a_profile(user_home, "# keys\nexport API_KEY='k 1'\nPLAIN=a=b\nEMPTY=\n\nQUOTED=\"x\"\n")
    seen = environment_seen(world, env_profile="work")
    assert (seen["API_KEY"], seen["PLAIN"], seen["EMPTY"], seen["QUOTED"]) == ("k 1", "a=b", "", "x")
    assert "k 1" not in Path(world.layout.ledger).read_bytes().decode("latin-1")
    assert (world.job(world.attempts[-1]) / "start").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("mode", "rights"),
    [(0o644, "read"), (0o640, "read"), (0o602, "write"), (0o620, "write"), (0o660, "read and write"), (0o610, "run")],
)
def test_a_profile_that_others_have_rights_to_is_refused(world: World, user_home: Path, mode: int, rights: str) -> None:
    path = a_profile(user_home, "A=b\n", mode)
    attempt = world.prepare("true", env_profile="work")
    error = code_of(lambda: world.accept(attempt))
    assert error.code == "ENV_PROFILE_PERMISSIONS"
    assert error.text == f"host local: {path} has mode {mode:04o}, others may {rights} it"
    assert error.hint == f"chmod 600 {path}"
    assert not list(Path(world.layout.root, "jobs").iterdir())
    assert world.status(attempt).state == "unknown"


@pytest.mark.parametrize("name", ["missing", "../../etc/passwd", "", "a/b"])
def test_a_profile_that_is_not_there_is_unknown(world: World, name: str) -> None:
    attempt = world.prepare("true", env_profile=name or "-")
    assert code_of(lambda: world.accept(attempt)).code == "ENV_PROFILE_UNKNOWN"


@pytest.mark.parametrize("line", ["no equals sign", "1A=b", "A B=c", "=x", "é=1", "A;B=c"])
def test_a_line_that_is_no_assignment_is_named(world: World, user_home: Path, line: str) -> None:
    path = a_profile(user_home, f"GOOD=1\n{line}\n")
    attempt = world.prepare("true", env_profile="work")
    error = code_of(lambda: world.accept(attempt))
    assert error.code == "ENV_PROFILE_UNKNOWN" and f"{path}, line 2" in error.text
    assert line not in error.text


def test_a_profile_is_a_file_or_a_link_to_one(world: World, user_home: Path) -> None:
    path = a_profile(user_home, "A=b\n")
    moved = path.rename(user_home / "elsewhere")
    path.symlink_to(moved)
    assert environment_seen(world, env_profile="work")["A"] == "b"
    moved.unlink()
    os.mkfifo(moved, 0o600)
    attempt = world.prepare("true", env_profile="work")
    error = code_of(lambda: world.accept(attempt))
    assert error.code == "ENV_PROFILE_UNKNOWN" and error.text.endswith(f"{path}: not a regular file")
    assert world.status(attempt).state == "unknown"
    assert environment.list_profiles() == {}


def test_a_pipe_in_place_of_the_kept_environment_is_replaced(world: World) -> None:
    world.layout.make()
    os.mkfifo(world.data_root / "login_env")
    assert environment_seen(world)["HOME"]
    assert (world.data_root / "login_env").is_file()


# --- login shells ---------------------------------------------------------------------------------------------------


@pytest.fixture
def use_shell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Make a script the account's login shell."""

    def use(script: str) -> None:
        path = tmp_path / "shell"
        path.write_text(script)
        path.chmod(0o755)
        account = pwd.getpwuid(os.getuid())
        fields = (*account[:6], str(path))
        monkeypatch.setattr(pwd, "getpwuid", lambda uid: pwd.struct_passwd(fields))

    return use


REAL = 'ACCOUNT_SAYS=hello; export ACCOUNT_SAYS; exec /bin/sh -c "$3"\n'


@pytest.mark.parametrize(
    "script",
    [
        "#!/bin/sh\n" + REAL,
        "#!/bin/sh\necho 'Welcome!'; printf 'no newline'\n" + REAL,
        "#!/bin/sh\nyes banner | head -n 20000\n" + REAL,
        "#!/bin/sh\ntrap 'echo goodbye' EXIT\nACCOUNT_SAYS=hello; export ACCOUNT_SAYS; /bin/sh -c \"$3\"; exit 3\n",
        "#!/bin/sh\nsleep 604 &\n" + REAL,
        "#!/bin/sh\nMULTI='a\nb=c'; export MULTI\n" + REAL,
    ],
    ids=["plain", "banner", "flood", "farewell", "daemon", "newline in a value"],
)
def test_what_a_login_shell_exports_is_taken(use_shell: Any, script: str) -> None:
    use_shell(script)
    found = environment.capture_login_environment()
    assert found["ACCOUNT_SAYS"] == "hello"
    assert "_" not in found and "PWD" not in found
    for pid in [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if is_sleeper(pid)]:
        os.kill(pid, 9)  # the start-up file's daemon is its own business; the test's to end


def is_sleeper(pid: int) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return words == b"sleep\x00604\x00" and b"SHELL=" in b"".join(environment_of(pid)) and is_alive(pid)


@pytest.mark.parametrize(
    "script",
    [
        "#!/bin/sh\nexit 1\n",
        "#!/no/such/interpreter\n",
        "#!/bin/sh\nkill -9 $$\n",
        "#!/bin/sh\nsleep 605\n",
        "#!/bin/sh\nyes\n",
        "#!/bin/sh\nread answer </dev/tty; exec /bin/false\n",
    ],
    ids=["broken", "not a program", "killed", "slow", "endless", "asks"],
)
def test_a_login_shell_without_an_answer_leaves_the_minimum(
    use_shell: Any, script: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "SHELL_LIMIT_S", 0.5)
    use_shell(script.replace("605", f"605{os.getpid()}"))  # whoever else runs this test
    found = environment.capture_login_environment()
    assert set(found) == {"HOME", "USER", "LOGNAME", "SHELL", "PATH", "LANG"}
    until(lambda: not sleepers(f"605{os.getpid()}"), what="the end of what the shell started")


def sleepers(seconds: str) -> list[str]:
    wanted = b"sleep\x00" + seconds.encode()
    return [pid for pid in os.listdir("/proc") if pid.isdigit() and wanted in command_of(int(pid))]


def command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes() if is_alive(pid) else b""
    except OSError:
        return b""


@pytest.mark.parametrize("name", ["bash", "dash", "zsh", "fish", "ksh", "tcsh", "csh"])
def test_real_shells(name: str, use_shell: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    real = shutil.which(name)
    if real is None:
        pytest.skip(f"no {name} here")
    account = pwd.getpwuid(os.getuid())
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: pwd.struct_passwd((*account[:6], real)))
    found = environment.capture_login_environment()
    assert found["SHELL"] == real and found["HOME"] == os.environ["HOME"]


def test_the_answer_is_kept_and_private(tmp_path: Path, use_shell: Any) -> None:
    use_shell("#!/bin/sh\necho x >> " + str(tmp_path / "asked") + "\n" + REAL)
    layout = Layout(str(tmp_path / "data"))
    layout.make()
    first = environment.load_login_environment(layout)
    second = environment.load_login_environment(layout)
    assert first == second and first["ACCOUNT_SAYS"] == "hello"
    assert (tmp_path / "asked").read_text() == "x\n"
    assert (tmp_path / "data" / "login_env").stat().st_mode & 0o077 == 0


def test_the_accounts_key_agent_is_for_origin_and_no_agent_gets_it(tmp_path: Path, use_shell: Any) -> None:
    use_shell("#!/bin/sh\nexport SSH_AUTH_SOCK=/run/keys SSH_CONNECTION=from-afar\n" + REAL)
    layout = Layout(str(tmp_path / "data"))
    layout.make()
    assert environment.load_account_environment(layout)["SSH_AUTH_SOCK"] == "/run/keys"
    found = environment.load_login_environment(layout)
    assert not [name for name in found if name.startswith("SSH_")]
