"""The one way to run git: a scrubbed environment, no hook, no prompt, bytes in and bytes out.

What an account, a template or a repository configured must not change what we do, so every GIT_* variable of the
caller is dropped, global and system configuration are off, and settings that would start a program are overridden on
the command line. Only when files of a person's working tree are selected (`user_config=True`) does that person's own
configuration apply, because ignore rules and clean filters are part of what `git add` means there; hooks, the file
system monitor and signing stay off even then.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from typing import IO, Dict, Iterable, Iterator, List, Mapping, NamedTuple, NoReturn, Optional, Sequence, Tuple, Union

from ..wire.errors import ShunterError
from .durable import disk_code, remove

Argument = Union[str, bytes]

# An empty core.fsmonitor means "off" in every version; "false" was the name of a program before git 2.36.
NEUTRAL = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=",
    "core.alternateRefsCommand=true",  # `true <path>` prints nothing: refs of lenders are never walked or advertised
    "core.splitIndex=false",  # or a private index would write its shared half into the repository
    "core.safecrlf=false",
    "commit.gpgSign=false",
    "push.gpgSign=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "submodule.recurse=false",
    "fetch.recurseSubmodules=false",
    "protocol.ext.allow=never",
)
_SCRUBBED = ("core.attributesFile=/dev/null", "core.excludesFile=/dev/null")
_STDERR_TAIL_BYTES = 4096
_FULL = re.compile(rb"No space left on device|Disk quota exceeded")
_UNUSABLE = re.compile(rb"Read-only file system|Input/output error|Stale file handle")


class GitResult(NamedTuple):
    """How a git command ended: exit status (negative: a signal), all of stdout, the last 4 KiB of stderr."""

    status: int
    out: bytes
    err: bytes

    @property
    def text(self) -> str:
        """Output as text without the last newline; bytes that are no UTF-8 become surrogates."""
        return os.fsdecode(self.out[:-1] if self.out.endswith(b"\n") else self.out)


def git_environment(
    *,
    user_config: bool = False,
    own: bool = True,
    keep_home: bool = False,
    optional_locks: Optional[bool] = None,
    base: Optional[Mapping[str, str]] = None,
) -> Dict[str, str]:
    """Environment for git, made from this process's own or from `base`.

    `own` marks repositories of ours: they may belong to another account (container, drive mount), so the ownership
    check is lifted for this call. `keep_home` is for transport, where ssh or the host program needs the real HOME.
    `optional_locks` defaults to `own`: reading a person's repository never writes its index.
    """
    given = os.environ if base is None else base
    env = {name: value for name, value in given.items() if not name.startswith("GIT_")}
    env.pop("LANGUAGE", None)
    env.pop("SSH_ASKPASS", None)
    env.update(
        LC_ALL="C.UTF-8",
        GIT_TERMINAL_PROMPT="0",
        GIT_ASKPASS="true",
        GIT_EDITOR="true",
        GIT_PAGER="cat",
        GIT_NO_REPLACE_OBJECTS="1",  # what is transferred is what the ids say, not what grafts show
        GIT_NO_LAZY_FETCH="1",  # a partial clone must not go to the network, nor write, because we look at it
        GIT_LFS_SKIP_SMUDGE="1",
        GIT_DEFAULT_HASH="sha1",  # what we make has the form that we say and read, whatever git's own default becomes
        GIT_DEFAULT_REF_FORMAT="files",
        GIT_OPTIONAL_LOCKS="1" if (own if optional_locks is None else optional_locks) else "0",
    )
    if not user_config:
        env.update(
            GIT_CONFIG_GLOBAL="/dev/null", GIT_CONFIG_SYSTEM="/dev/null", GIT_CONFIG_NOSYSTEM="1", GIT_ATTR_NOSYSTEM="1"
        )
        if not keep_home:
            # git 2.30 and 2.31 do not know GIT_CONFIG_GLOBAL; they find no ~/.gitconfig below a file.
            env["HOME"] = "/dev/null"
            env.pop("XDG_CONFIG_HOME", None)
    if own:
        env.update(GIT_CONFIG_COUNT="1", GIT_CONFIG_KEY_0="safe.directory", GIT_CONFIG_VALUE_0="*")
    return env


def git_argv(
    args: Sequence[Argument],
    *,
    git_dir: Optional[str] = None,
    work_tree: Optional[str] = None,
    config: Iterable[str] = (),
    user_config: bool = False,
) -> List[bytes]:
    """Argument vector: git, overrides, repository, command."""
    argv: List[Argument] = ["git"]
    for setting in (*NEUTRAL, *(() if user_config else _SCRUBBED), *config):
        argv += ["-c", setting]
    if git_dir is not None:
        argv.append("--git-dir=" + git_dir)
    if work_tree is not None:
        argv.append("--work-tree=" + work_tree)
    return [os.fsencode(each) for each in (*argv, *args)]


def run_git(
    args: Sequence[Argument],
    *,
    git_dir: Optional[str] = None,
    work_tree: Optional[str] = None,
    cwd: Optional[str] = None,
    stdin: Union[bytes, IO[bytes], None] = None,
    env: Optional[Mapping[str, str]] = None,
    config: Iterable[str] = (),
    user_config: bool = False,
    own: bool = True,
    keep_home: bool = False,
    optional_locks: Optional[bool] = None,
    base: Optional[Mapping[str, str]] = None,
    timeout_s: Optional[float] = None,
    keep: Tuple[int, ...] = (),
    code: str = "GIT_FAILED",
    allowed: Tuple[int, ...] = (0,),
) -> GitResult:
    """Run git to its end. An exit status outside `allowed` raises `code`, or DISK_FULL; () allows every status.

    `keep`: descriptors that git inherits, such as a lock that shall last as long as it runs. The directory defaults to
    the working tree, else the repository: the caller's own may have been removed.
    """
    argv = git_argv(args, git_dir=git_dir, work_tree=work_tree, config=config, user_config=user_config)
    environment = git_environment(
        user_config=user_config, own=own, keep_home=keep_home, optional_locks=optional_locks, base=base
    )
    environment.update(env or {})
    name = os.fsdecode(args[0])
    result = _spawn(
        argv, cwd or work_tree or git_dir or "/", environment, stdin, timeout_s, keep=keep, name=name, code=code
    )
    if allowed and result.status not in allowed:
        raise_failed(name, result, code=code)
    return result


def _spawn(
    argv: List[bytes],
    cwd: str,
    env: Dict[str, str],
    stdin: Union[bytes, IO[bytes], None],
    timeout_s: Optional[float],
    *,
    keep: Tuple[int, ...],
    name: str,
    code: str,
) -> GitResult:
    try:
        process = subprocess.Popen(
            argv,
            cwd=cwd,
            env=env,
            stdin=subprocess.PIPE if isinstance(stdin, bytes) else stdin or subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            # A group of its own only where we may have to end it: git's children hold the pipes open.
            start_new_session=timeout_s is not None,
            pass_fds=keep,
        )
    except FileNotFoundError as exc:
        missing = "git" if os.path.isdir(cwd) else cwd
        raise ShunterError(code, f"git {name} could not start: {missing} does not exist") from exc
    except OSError as exc:
        raise ShunterError(code, f"git {name} could not start in {cwd}: {exc.strerror}") from exc
    with process:
        try:
            out, err = process.communicate(stdin if isinstance(stdin, bytes) else None, timeout=timeout_s)
        except subprocess.TimeoutExpired as exc:
            os.killpg(process.pid, signal.SIGKILL)
            raise ShunterError(code, f"git {name} did not end within {timeout_s:g} s") from exc
        except BaseException:
            process.kill()
            raise
    return GitResult(process.returncode, out, err[-_STDERR_TAIL_BYTES:])


def failure_line(err: bytes) -> str:
    """The line of git's stderr that says what went wrong: the first fatal or error line, else the last line."""
    lines = [line.strip() for line in err.decode("utf-8", "replace").splitlines() if line.strip()]
    for mark in ("fatal:", "error:", "remote: fatal:", "remote: error:"):
        for line in lines:
            if line.startswith(mark):
                return line
    return lines[-1] if lines else "no message"


def is_disk_full(err: bytes) -> bool:
    return _FULL.search(err) is not None


def git_disk_code(err: bytes, otherwise: str) -> str:
    """As `disk_code`, from what git printed."""
    return "DISK_FULL" if is_disk_full(err) else "DISK_UNUSABLE" if _UNUSABLE.search(err) else otherwise


def raise_failed(name: str, result: GitResult, *, code: str = "GIT_FAILED") -> NoReturn:
    """Turn a failed command into an error with git's own words."""
    line = failure_line(result.err)
    if is_disk_full(result.err):
        raise ShunterError("DISK_FULL", f"git {name} found the disk full: {line}")
    code = git_disk_code(result.err, code)
    how = f"was ended by signal {-result.status}" if result.status < 0 else f"failed with status {result.status}"
    raise ShunterError(code, f"git {name} {how}: {line}")


@contextlib.contextmanager
def os_errors(code: str, doing: str) -> Iterator[None]:
    """Turn an OSError of our own file work into `code`, or one of the disk; `doing` begins the sentence."""
    try:
        yield
    except OSError as exc:
        raise ShunterError(disk_code(exc, code), f"{doing}: {exc}") from exc


def alternates_line(objects_dir: str) -> str:
    """One entry of info/alternates or GIT_ALTERNATE_OBJECT_DIRECTORIES, quoted as git reads it when that is needed."""
    if not re.search(r'[\n:"\\#]', objects_dir):
        return objects_dir
    escaped = objects_dir.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def write_atomically(path: str, data: bytes, *, mode: int = 0o644, temporary: Optional[str] = None) -> None:
    """Replace a file by rename, so that a reader or a crash sees the old or the new content, never a part."""
    temporary = temporary or f"{path}.{os.getpid()}.new"
    remove(temporary)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        os.chmod(temporary, mode)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def write_ref(git_dir: str, ref: str, oid: str, *, code: str = "GIT_FAILED") -> None:
    """Let a ref of a bare repository of ours stand at a commit that is there.

    Its refs are plain files, so this is git's own way without starting git: the ref's lock, then a rename. Whatever is
    in the way is left to git itself, which knows how to wait and what to say.
    """
    path = os.path.join(git_dir, ref)
    lock = path + ".lock"
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        descriptor = os.open(lock, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    except OSError:
        run_git(["update-ref", ref, oid], git_dir=git_dir, code=code)
        return
    try:
        with os_errors(code, f"{ref} could not be written"):
            with os.fdopen(descriptor, "wb") as file:
                file.write(oid.encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
            os.rename(lock, path)
    except BaseException:
        remove(lock)
        raise
