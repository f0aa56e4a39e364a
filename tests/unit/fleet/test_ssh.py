"""What ssh and the far end say, told apart by what a person has to do; and lines that every login shell reads alike."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from shunter.fleet.ssh import INSTALL, LOOK, PURGE, RUN, SshTransport, remote_failure
from shunter.fleet.sshfailure import goes_through_others, is_way_cut, ssh_failure
from shunter.wire.errors import ShunterError

CHANGED = """@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@
@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @
@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@
Offending ED25519 key in /home/me/.ssh/known_hosts:7
  remove with:
  ssh-keygen -f "/home/me/.ssh/known_hosts" -R "[mini]:2222"
Host key for [mini]:2222 has changed and you have requested strict checking.
Host key verification failed.
"""


@pytest.mark.parametrize(
    ("said", "code", "words"),
    [
        (CHANGED, "HOST_KEY", 'ssh-keygen -f "/home/me/.ssh/known_hosts" -R "[mini]:2222"'),
        ("No ED25519 host key is known for mini and you have requested strict checking.\n", "HOST_KEY", "not known"),
        ("Host key verification failed.\n", "HOST_KEY", "--accept-new-key"),
        ("me@mini: Permission denied (publickey,password).\n", "HOST_AUTH", "ssh-copy-id"),
        ("Received disconnect from 1.2.3.4 port 22:2: Too many authentication failures\n", "HOST_AUTH", "IdentityFile"),
        ("ssh: Could not resolve hostname mini: Name or service not known\n", "HOST_UNREACHABLE", "not known here"),
        ("ssh: connect to host mini port 22: Connection refused\n", "HOST_UNREACHABLE", "nothing listens"),
        ("ssh: connect to host mini port 22: Connection timed out\n", "HOST_UNREACHABLE", "does not answer"),
        ("Connection timed out during banner exchange\n", "HOST_UNREACHABLE", "does not answer"),
        ("ssh: connect to host mini port 22: No route to host\n", "HOST_UNREACHABLE", "network or VPN"),
        ("exec request failed on channel 0\n", "HOST_UNREACHABLE", "nproc"),
        ("Connection closed by UNKNOWN port 65535\n", "HOST_UNREACHABLE", "Connection closed"),
        ("", "HOST_UNREACHABLE", "the connection failed"),
    ],
)
def test_what_ssh_says(said, code, words):
    found = ssh_failure("mini", ("ssh", "me@mini"), said.encode())
    assert found.code == code
    assert words in f"{found.text} {found.hint}"
    assert "\n" not in found.text and "\n" not in (found.hint or "")


def test_what_is_to_be_done_names_the_command_that_gets_there():
    found = ssh_failure("mini", ("ssh", "-F", "/my own/config", "mini"), b"Permission denied (publickey).")
    assert "ssh -F '/my own/config' mini true" in (found.hint or "") and "ssh-copy-id" not in (found.hint or "")


CUT = "kex_exchange_identification: Connection closed by remote host\nConnection closed by UNKNOWN port 65535\n"
CONFIGURATION = {
    "mini": "hostname 10.0.0.3\nport 22\nuser me\nproxyjump one,you@two:2222\n",
    "one": "hostname 10.0.0.1\nport 22\nuser me\nproxyjump door\nhostkeyalias first\n",
    "you@two": "hostname 10.0.0.1\nport 22\nuser you\n",
    "door": "hostname door.example.org\nport 22\nuser me\n",
    "alone": "hostname 10.0.0.4\nport 22\nuser me\nproxycommand ssh -W %h:%p you@gate\n",
    "circle": "hostname 10.0.0.5\nport 22\nuser me\nproxyjump circle\n",
}


@pytest.mark.parametrize(
    ("target", "said", "words"),
    [
        ("mini", "me@10.0.0.1: Permission denied (publickey).", "mini: its jump host one did not let us in: me@10"),
        ("mini", "you@10.0.0.1: Permission denied (publickey).", "its jump host you@two did not let us in: you@10"),
        ("mini", "you@10.0.0.1: Permission denied (publickey).", "then ssh -p 2222 you@two true"),
        (
            "mini",
            "ssh: connect to host 10.0.0.1 port 2222: Connection refused",
            "its jump host you@two: nothing listens",
        ),
        (
            "mini",
            "ssh: connect to host door.example.org port 22: No route to host",
            "its jump host door: there is no way",
        ),
        ("mini", "No ED25519 host key is known for first and you have requested strict checking.", "`ssh one true`"),
        (
            "mini",
            "No ED25519 host key is known for [10.0.0.1]:2222 and you have requested s",
            "`ssh -p 2222 you@two true`",
        ),
        ("mini", "Host key verification failed.", "the host key of one of its jump hosts is not known here"),
        ("alone", "me@gate: Permission denied (publickey).", "me@gate on the way to it did not let us in"),
        ("alone", "me@gate: Permission denied (publickey).", "ssh-copy-id me@gate"),
        (
            "alone",
            "ssh: connect to host gate port 9: Connection refused",
            "gate port 9 on the way to it: nothing listens",
        ),
        (
            "alone",
            "No RSA host key is known for [gate]:9 and you have requested strict checking.",
            "`ssh -p 9 gate true`",
        ),
        ("alone", "Host key verification failed.", "the host key of a machine on the way to it is not known"),
        (
            "alone",
            "bash: line 1: exec: cloudflared: not found",
            "host mini: bash: line 1: exec: cloudflared: not found",
        ),
        ("alone", "", "host mini: Connection closed by UNKNOWN port 65535"),
        ("circle", "me@10.0.0.5: Permission denied (publickey).", "its jump host circle did not let us in"),
        ("unknown", "me@10.0.0.5: Permission denied (publickey).", "me@10.0.0.5 on the way to it did not let us in"),
    ],
)
def test_what_ssh_says_about_the_way(target, said, words):
    found = ssh_failure("mini", ("ssh", target), f"{said}\n{CUT}".encode(), lambda each: CONFIGURATION.get(each, ""))
    assert words in f"{found.text} {found.hint}"


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (
            "/h/config: line 3: Bad configuration option: x\n/h/config: terminating, 1 bad configuration options",
            "line 3: Bad",
        ),
        ("/h/config line 3: Bad port 'x'.\n/h/config: terminating, 1 bad configuration options", "line 3: Bad port"),
        ("command-line: line 0: Bad configuration option: foo", "line 0: Bad configuration option: foo"),
        ("Bad owner or permissions on /h/config", "Bad owner or permissions on /h/config"),
        ("Can't open user config file /h/none: No such file or directory", "/h/none: No such file"),
    ],
)
def test_what_ssh_says_about_its_configuration(said, words):
    found = ssh_failure("mini", ("ssh", "-F", "/h/config", "mini"), said.encode())
    assert (found.code, found.hint) == ("SSH_CONFIG", "mend that; ssh -F /h/config -G mini reads it")
    assert words in found.text


@pytest.mark.parametrize(
    ("said", "is_cut"),
    [
        (CUT, True),
        (f"me@gate: Permission denied (publickey).\n{CUT}", False),
        ("Connection timed out during banner exchange\nConnection to UNKNOWN port 65535 timed out", False),
        ("ssh: connect to host mini port 22: Connection refused", False),
        ("me@mini: Permission denied (publickey).", False),
    ],
)
def test_only_a_way_that_was_cut_without_a_word_is_asked_about(said, is_cut):
    assert is_way_cut(said.encode()) == is_cut


@pytest.mark.parametrize(
    ("told", "goes"),
    [(CONFIGURATION["mini"], True), (CONFIGURATION["alone"], True), (CONFIGURATION["door"], False), ("", False)],
)
def test_whether_a_host_is_reached_through_others(told, goes):
    assert goes_through_others(told) == goes


@pytest.mark.parametrize(
    ("status", "said", "words"),
    [
        (127, "bash: line 1: exec: python3: not found\n", "install Python 3.9"),
        (127, "fish: Unknown command: python3\n", "install Python 3.9"),
        (1, "python3: Command not found.\n", "install Python 3.9"),
        (126, "bash: /opt/python: Permission denied\n", "install Python 3.9"),
        (69, "Welcome\nSHUNTER-PYTHON-OLD 3.6.15\n", "is Python 3.6.15, which is too old"),
        (1, "Traceback …\nPermissionError: [Errno 13] Permission denied: '/home/me/.local'\n", "data_root"),
    ],
)
def test_what_the_far_end_says(status, said, words):
    found = remote_failure("mini", "python3", status, said.encode())
    assert found.code == "HOST_INCAPABLE"
    assert words in f"{found.text} {found.hint}"


def test_a_full_disk_there_is_called_so():
    assert remote_failure("a", "python3", 1, b"OSError: [Errno 28] No space left on device").code == "DISK_FULL"
    read_only = remote_failure("a", "python3", 1, b"OSError: [Errno 30] Read-only file system: '/home/me/.local'")
    assert (
        read_only.code == "DISK_UNUSABLE"
        and "mount" in (read_only.hint or "")
        and "data_root" in (read_only.hint or "")
    )


@pytest.mark.parametrize("code", [RUN, LOOK, INSTALL, PURGE])
def test_a_line_for_every_shell(code):
    line = SshTransport("a", "a").line(code, ["/a b/'\"$(x)`!\\\n"])
    assert not set("\\!\n`$") & set(line.replace(code, "")) and line.count("'") == 2
    assert "$" not in code and "`" not in code


def test_a_python_that_is_no_plain_path_is_refused():
    with pytest.raises(ShunterError):
        SshTransport("a", "a", python="python3; touch /tmp/x")


@pytest.mark.parametrize("minor", [6, 7, 8])
def test_an_old_python_says_so_itself(minor):
    found = sorted(Path("~/.pyenv/versions").expanduser().glob(f"3.{minor}.*/bin/python"))
    if not found:
        pytest.skip(f"no Python 3.{minor} here")
    line = SshTransport("a", "a", python=str(found[0])).line(RUN, ["/nowhere", "x.pyz", "0", "serve"])
    done = subprocess.run(["sh", "-c", line], capture_output=True, timeout=60)
    assert done.returncode == 69
    assert "which is too old" in remote_failure("a", "python3", done.returncode, done.stdout).text
