"""Forgetting a task in the transfer repository, when it is closed."""

from __future__ import annotations

from pathlib import Path

from shunter.host.gitrun import run_git
from shunter.host.mirror import base_ref, kept_prefix
from shunter.wire.ids import checked_id

from .transfer import held_result_ref


def forget_task(root: Path, repo_id: str, task_id: str, *, kept_work: bool = True) -> None:
    """Drop the task's refs, with `kept_work` also those of work that was no part of its result. May be repeated."""
    git_dir = root / f"{checked_id(repo_id)}.git"
    if not git_dir.is_dir():
        return
    names = [base_ref(task_id), held_result_ref(task_id), *([kept_prefix(task_id)] if kept_work else [])]
    found = run_git(["for-each-ref", "--format=delete %(refname)", *names], git_dir=str(git_dir))
    if found.out:
        run_git(["update-ref", "--stdin"], git_dir=str(git_dir), stdin=found.out)
