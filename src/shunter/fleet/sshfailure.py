"""Why ssh did not get to a host, in its own words: the line that names the cause, and the machine that it speaks of.

A jump host is reached by an ssh of its own, whose words come first; that of the host then only says that its way was
cut. So the first line that names a cause counts, and what `ssh -G` tells about the way decides whose it is.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ..wire.errors import ShunterError

# In the words of OpenSSH (readconf.c, sshconnect.c, misc.c) and of the C library; what a person has to do differs.
UNREACHED = (
    ("could not resolve hostname", "its name is not known here", "look at HostName in ~/.ssh/config, or at the name"),
    ("connection refused", "nothing listens there", "start sshd on it, or give its port in ~/.ssh/config"),
    ("timed out", "it does not answer", "is it on, and reachable from here?"),
    ("no route to host", "there is no way to it", "is it on, and is the network or VPN up?"),
    ("network is unreachable", "there is no way to it", "is it on, and is the network or VPN up?"),
    ("exec request failed", "it starts nothing for the account", "end what it runs there, or raise its nproc limit"),
)
CONFIG = re.compile(
    r"Bad owner or permissions on|Can't open user config file|Bad configuration option|command-line:? line \d+:"
    r"|terminating, \d+ bad configuration option"
)
CONFIG_LINE = re.compile(r" line \d+: ")
KEY = re.compile(r"Host key for (\S+) has changed|host key is known for (\S+) and you have")
AUTH = re.compile(r"(\S+@\S+): Permission denied|Permission denied|Too many authentication failures")
PLACE = re.compile(r"connect to host (\S+ port \d+)|resolve hostname ([^\s:]+)")
UNVERIFIED = re.compile(r"Host key verification failed")
FORBIDDEN = re.compile(r"open failed: administratively prohibited")
# What the host's own ssh says when its way is cut; the address is unknown to it because another program connects.
CUT = re.compile(r"(kex|ssh)_exchange_identification|UNKNOWN port 65535|banner exchange|stdio forwarding failed")
HOPS_LIMIT = 8

Configuration = Callable[[str], str]  # what `ssh -G` tells of a target; empty when it cannot be asked


@dataclass(frozen=True, slots=True)
class Machine:
    """Who kept us out. `by_hand`: the command that gets there; `whose` says who it is when it is not the host."""

    by_hand: tuple[str, ...]
    whose: str | None = None


@dataclass(frozen=True, slots=True)
class Hop:
    """A jump host: as ssh's configuration has it, and the names that ssh calls it by."""

    words: tuple[str, ...]
    names: frozenset[str]


def ssh_failure(
    name: str, login: Sequence[str], output: bytes, configuration: Configuration = lambda target: ""
) -> ShunterError:
    """What ssh said, told apart by what a person has to do; `login` is the command that gets there."""
    lines = [line.strip() for line in output.decode("utf-8", "replace").splitlines() if line.strip()]
    if any(map(CONFIG.search, lines)):
        said = next((line for line in lines if CONFIG_LINE.search(line)), lines[-1])
        hint = f"mend that; {shlex.join([*login[:-1], '-G', login[-1]])} reads it"
        return ShunterError("SSH_CONFIG", f"host {name}: ssh cannot read its configuration: {said}", hint=hint)
    kept_out = find_machine(login, lines, configuration)
    if any("HOST IDENTIFICATION HAS CHANGED" in line for line in lines):
        return _changed_key(name, kept_out, lines)
    if any(UNVERIFIED.search(line) or KEY.search(line) for line in lines):
        return _unknown_key(name, kept_out)
    denied = next(filter(AUTH.search, lines), None)
    if denied is not None:
        return _refused_login(name, kept_out, denied)
    if any(map(FORBIDDEN.search, lines)):
        text = f"host {name}: {kept_out.whose or 'it'} passes no connection on"
        return ShunterError("HOST_UNREACHABLE", text, hint="see AllowTcpForwarding and PermitOpen in its sshd_config")
    who = "" if kept_out.whose is None else f"{kept_out.whose}: "
    for line in lines:
        for words, meaning, remedy in UNREACHED:
            if words in line.lower():
                return ShunterError("HOST_UNREACHABLE", f"host {name}: {who}{meaning} ({line})", hint=remedy)
    telling = [line for line in lines if not CUT.search(line)] or lines or ["the connection failed"]
    return ShunterError("HOST_UNREACHABLE", f"host {name}: {telling[-1]}", hint=f"{shlex.join(login)} true")


def _changed_key(name: str, kept_out: Machine, lines: Sequence[str]) -> ShunterError:
    mend = re.search(r"ssh-keygen -f \S+ -R \S+", "\n".join(lines))
    hint = mend[0] if mend else f"ssh-keygen -R {kept_out.by_hand[-1]}"
    whose = "its host key" if kept_out.whose is None else f"the host key of {kept_out.whose}"
    text = f"host {name}: {whose} changed, so it was set up anew or somebody stands between"
    return ShunterError("HOST_KEY", text, hint=hint)


def _unknown_key(name: str, kept_out: Machine) -> ShunterError:
    by_hand = shlex.join(kept_out.by_hand)
    if kept_out.whose is None:
        hint = f"compare it, then `shunter host setup {name} --accept-new-key` or `{by_hand}` and yes"
        return ShunterError("HOST_KEY", f"host {name}: its host key is not known here", hint=hint)
    hint = f"once by hand: `{by_hand} true`, compare it and say yes; --accept-new-key is for {name} itself"
    return ShunterError("HOST_KEY", f"host {name}: the host key of {kept_out.whose} is not known here", hint=hint)


def _refused_login(name: str, kept_out: Machine, said: str) -> ShunterError:
    by_hand = kept_out.by_hand
    copy_key = "ssh-copy-id" if len(by_hand) == 2 else "bring your public key into ~/.ssh/authorized_keys of"
    hint = (
        f"{copy_key} {by_hand[-1]}, or name the key with IdentityFile in ~/.ssh/config; then {shlex.join(by_hand)} true"
    )
    who = "" if kept_out.whose is None else f": {kept_out.whose}"
    return ShunterError("HOST_AUTH", f"host {name}{who} did not let us in: {said}", hint=hint)


def find_machine(login: Sequence[str], lines: Sequence[str], configuration: Configuration) -> Machine:
    """The host, unless its way was cut and something on that way says why."""
    cause = find_cause(lines)
    if cause is None or not any(map(CUT.search, lines)):
        return Machine(tuple(login))
    named = cause[cause.lastindex].rstrip(".") if cause.lastindex else None
    hops = list(find_hops(login[-1], configuration))
    hop = next((hop for hop in hops if named in hop.names), hops[0] if len(hops) == 1 else None)
    if hop is not None:
        return Machine((*login[:-1], *hop.words), f"its jump host {hop.words[-1]}")
    if hops:
        return Machine(tuple(login), "one of its jump hosts")
    if named is None:
        return Machine(tuple(login), "a machine on the way to it")
    words, _ = parse_jump(re.sub(r"(.*) port (\d+)", r"[\1]:\2", named))
    return Machine((*login[:-1], *words), f"{named} on the way to it")


def find_cause(lines: Sequence[str]) -> re.Match[str] | None:
    """Of the first line that tells one; its last group is the machine, where it names that."""
    found = (pattern.search(line) for line in lines for pattern in (KEY, AUTH, PLACE, UNVERIFIED, FORBIDDEN))
    return next(filter(None, found), None)


def is_way_cut(output: bytes) -> bool:
    """Whether ssh says only that, and not why; a way that is silent is none that was cut."""
    lines = output.decode("utf-8", "replace").splitlines()
    is_silent = any("timed out" in line for line in lines)
    return any(map(CUT.search, lines)) and not is_silent and find_cause(lines) is None


def goes_through_others(told: str) -> bool:
    """Whether a target is reached by a jump host or a command of the user's, by its settings as `ssh -G` tells them."""
    settings = _settings(told)
    return any(settings.get(key, "none") != "none" for key in ("proxyjump", "proxycommand"))


def find_hops(target: str, configuration: Configuration, *, left: int = HOPS_LIMIT) -> Iterator[Hop]:
    """The jump hosts of a target, those of jump hosts included, in the order in which they are reached."""
    jumps = _settings(configuration(target)).get("proxyjump", "none")
    for jump in jumps.split(",") if jumps != "none" and left else ():
        words, machine = parse_jump(jump)
        yield from find_hops(machine, configuration, left=left // 2)
        yield Hop(words, _names_of(machine, configuration, port=words[1] if len(words) == 3 else None))


def parse_jump(jump: str) -> tuple[tuple[str, ...], str]:
    """([user@]machine as words for ssh, with its port, and as ssh's configuration is asked for it)."""
    found = re.fullmatch(r"(?:ssh://)?((?:[^@]*@)?(?:\[[^]]*\]|[^:/]*))(?::(\d+))?/?", jump)
    machine = (found[1] if found else jump).replace("[", "").replace("]", "")
    return ("-p", found[2], machine) if found and found[2] else (machine,), machine


def _names_of(target: str, configuration: Configuration, *, port: str | None = None) -> frozenset[str]:
    """What ssh may call the machine: by address and port, by login, by the name of its key."""
    settings = _settings(configuration(target))
    machine = settings.get("hostname", target.rpartition("@")[2])
    user, _, _ = target.rpartition("@")
    port = port or settings.get("port", "22")
    names = {machine, f"{machine} port {port}", f"[{machine}]:{port}", settings.get("hostkeyalias", machine)}
    return frozenset({*names, f"{user or settings.get('user', '')}@{machine}"})


def _settings(told: str) -> dict[str, str]:
    pairs = (line.partition(" ") for line in told.splitlines())
    return {key: value for key, _, value in pairs}
