"""Every error a person or a program can meet: a stable code, an exit status, and whether trying again can help.

Foreign exceptions end where the foreign library ends; what crosses a floor is a `ShunterError`. The table in
`docs/errors.md` is generated from `CODES`.
"""

from __future__ import annotations

from typing import Dict, NamedTuple, Optional


class Code(NamedTuple):
    """What is fixed about a code: exit status (sysexits.h), whether a retry can help, one line for people."""

    exit_status: int
    retryable: bool
    meaning: str


CODES: Dict[str, Code] = {
    # 64: usage and configuration
    "USAGE": Code(64, False, "The command line is wrong."),
    "CONFIG_INVALID": Code(64, False, "A configuration file is wrong; the text names file, key and allowed form."),
    "NOT_A_REPOSITORY": Code(64, False, "The directory is not inside a git repository."),
    "UNBORN_HEAD": Code(64, False, "The repository has no commit yet, so there is no base to start from."),
    "BASE_NOT_FOUND": Code(64, False, "The base given at submit does not name a commit."),
    "REPOSITORY_UNSUPPORTED": Code(64, False, "The repository has a form that cannot be transferred."),
    "SENSITIVE_PATH": Code(64, False, "The captured files include a path that looks like a secret."),
    "PROMPT_INVALID": Code(64, False, "The prompt is empty, holds a NUL byte, is not UTF-8 or is too long."),
    "AGENT_UNKNOWN": Code(64, False, "No agent has that name."),
    "AGENT_OPTION": Code(64, False, "The chosen agent does not know that option."),
    "HOST_UNKNOWN": Code(64, False, "No host has that name."),
    "HOST_DUPLICATE": Code(64, False, "The host is the same machine and data root as another one of the pool."),
    "TASK_UNKNOWN": Code(64, False, "No task has that id."),
    "TASK_AMBIGUOUS": Code(64, False, "The id is the beginning of several tasks."),
    "TASK_BUSY": Code(64, False, "The task has a turn that is not over."),
    "TASK_CLOSED": Code(64, False, "The task is closed."),
    "RESULT_UNDELIVERED": Code(64, False, "The result is not where it was to go yet; deliver it or discard it."),
    "ORIGIN_UNKNOWN": Code(64, False, "The project has no remote `origin`, or one that no host can be sent to."),
    "BASE_NOT_ON_ORIGIN": Code(64, False, "The base is on no branch or tag of origin."),
    "PUBLISH_REQUIRES_COMMITTED_BASE": Code(64, False, "Uncommitted work cannot be the base of what goes to origin."),
    "BRANCH_INVALID": Code(64, False, "The name is none that a branch of origin may have."),
    "BRANCH_TAKEN": Code(64, False, "The branch belongs to another task, or to somebody else on origin."),
    "CAPABILITY_MISSING": Code(64, False, "The host that was asked for lacks what the task needs."),
    "FOLLOWUP_LIMIT": Code(64, False, "The task has had as many follow-ups as were allowed at submit."),
    "SESSION_UNBOUND": Code(64, False, "There is no session of the agent that could be resumed."),
    "SESSION_FAILING": Code(64, False, "The last messages to the session failed without anything being done."),
    "ANSWER_INVALID": Code(64, False, "The answer fits no open question or none of its options."),
    # 69: not reachable before acceptance
    "HOST_UNREACHABLE": Code(69, True, "The host did not answer; nothing is known about its turns."),
    "HOST_KEY": Code(69, False, "The host's key is not known, or it changed; a person has to look."),
    "HOST_AUTH": Code(69, False, "The host did not let us in."),
    "SSH_CONFIG": Code(69, False, "ssh cannot read its configuration; the text names file and line."),
    "HOST_OUTDATED": Code(69, False, "The host lacks the helper of this version; run its set-up."),
    "DATA_ROOT_MISSING": Code(69, False, "The host's data root is not there, or it is empty."),
    "HOST_INCAPABLE": Code(69, False, "The host lacks something that the job needs."),
    "STORE_UNAVAILABLE": Code(69, True, "The store could not be opened."),
    "STORE_NEWER": Code(69, False, "The store was written by a newer version; nothing was changed."),
    "STORE_DAMAGED": Code(69, False, "The store is damaged; nothing was changed."),
    "LEDGER_UNAVAILABLE": Code(69, True, "The host's ledger could not be opened."),
    "LEDGER_NEWER": Code(69, False, "The host's ledger was written by a newer version; nothing was changed."),
    "LEDGER_DAMAGED": Code(69, False, "The host's ledger is damaged; nothing was changed."),
    "ENV_PROFILE_UNKNOWN": Code(69, False, "The host has no environment profile of that name, or it cannot be read."),
    "ENV_PROFILE_PERMISSIONS": Code(69, False, "An environment profile is open to others; its mode must be 0600."),
    "AGENT_MISSING": Code(69, False, "The agent's program is not on the host."),
    "ORIGIN_UNREACHABLE": Code(69, True, "Origin did not answer."),
    "ORIGIN_AUTH": Code(69, False, "Origin did not let the account in, or shows it no such repository."),
    # 70: protocol, lost turn, publication
    "PROTOCOL": Code(70, False, "A message broke the protocol."),
    "DEADLINE": Code(70, True, "The answer did not come in time; the outcome is asked for by id."),
    "TURN_LOST": Code(70, False, "The turn ended without a trace of how."),
    "PUBLISH_FAILED": Code(70, True, "The result could not be published."),
    "PUBLISH_REFUSED": Code(70, False, "Origin refused the branch; a person has to look."),
    "FETCH_FAILED": Code(70, True, "The result could not be brought home; it is safe on the host."),
    "WAIT_TIMEOUT": Code(70, True, "The wait ended before the task did; the task goes on."),
    "WORKTREE_INCONSISTENT": Code(70, False, "The workspace on the host is not what was recorded; it is left alone."),
    "CHECKOUT_FAILED": Code(70, False, "The base could not be checked out completely; no agent was started."),
    "BASE_UNAVAILABLE": Code(70, False, "The recorded base commit is no longer to be had."),
    "TRANSFER_FAILED": Code(70, True, "Objects could not be moved between home and host."),
    "RESULT_UNKNOWN": Code(70, False, "The host does not know the result that home has, and a turn was to go on from."),
    "LEASE_LOST": Code(70, True, "The lease is not valid any more."),
    "TOMBSTONED": Code(70, False, "The attempt was given up before it was accepted and can never start."),
    "ATTEMPT_CONFLICT": Code(70, False, "Another attempt of this job was accepted; a second is refused."),
    "INTERNAL": Code(70, False, "A fault in shunter."),
    # 74: local input and output
    "IO": Code(74, True, "A local file could not be read or written."),
    "DISK_FULL": Code(74, True, "The disk is full; nothing was overwritten."),
    "DISK_UNUSABLE": Code(74, True, "A host's disk is read-only or answers with errors; nothing was overwritten."),
    "CHECKOUT_MISSING": Code(74, True, "The checkout that a task came from is gone or cannot be read; the task waits."),
    "SNAPSHOT_CHANGED": Code(74, True, "The working tree changed while it was captured."),
    "GIT_FAILED": Code(74, True, "A git command failed."),
    "NO_DISPATCHER": Code(74, True, "No dispatcher could be started; the task is stored and waits."),
    # 75: no room
    "CAPACITY_BUSY": Code(75, True, "No host has room now."),
    # 130: Ctrl-C
    "INTERRUPTED": Code(130, False, "Ctrl-C came after something was begun that goes on; the text tells what."),
}


class ShunterError(Exception):
    """An error with a stable code. `text` is one sentence for people; `hint` is the command or step that mends it."""

    def __init__(self, code: str, text: str, *, hint: Optional[str] = None) -> None:
        super().__init__(text)
        self.code = code if code in CODES else "INTERNAL"
        self.text = text
        self.hint = hint

    @property
    def exit_status(self) -> int:
        return CODES[self.code].exit_status

    @property
    def retryable(self) -> bool:
        return CODES[self.code].retryable

    def __reduce__(self):  # type: ignore[no-untyped-def]
        return (ShunterError, (self.code, self.text))
