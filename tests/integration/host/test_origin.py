"""Pushing one branch and fetching one commit, against a repository in a directory; and what git's words mean."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from shunter.host.gitrun import GitResult, run_git
from shunter.host.layout import Layout
from shunter.host.mirror import ensure_mirror
from shunter.host.origin import failure_of, fetch_base, open_origin, push_branch
from shunter.wire.errors import ShunterError

AUTHOR = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b"}


class Place:
    """An origin with a commit on main, and a host with a mirror that has it and one commit more."""

    def __init__(self, root: Path) -> None:
        self.bare, self.layout = root / "origin.git", Layout(str(root / "data"))
        self.layout.make()
        subprocess.run(["git", "init", "-q", "--bare", "-b", "main", str(self.bare)], check=True)
        self.first = self.commit(self.bare, "first")
        run_git(["update-ref", "refs/heads/main", self.first], git_dir=str(self.bare))
        self.mirror = self.layout.mirror("p-1")
        ensure_mirror(self.mirror)
        fetch_base(self.layout, self.mirror, task_id="t1", oid=self.first, url=str(self.bare))
        self.mine = self.commit(Path(self.mirror), "mine", self.first)
        self.origin = open_origin(self.layout, str(self.bare))

    def commit(self, git_dir: Path, words: str, *parents: str) -> str:
        tree = run_git(["hash-object", "-t", "tree", "-w", "--stdin"], git_dir=str(git_dir), stdin=b"").text
        args = ["commit-tree", "-m", words, *(word for each in parents for word in ("-p", each)), tree]
        return run_git(args, git_dir=str(git_dir), env=AUTHOR).text

    def push(self, oid: str, *, expected: str | None) -> None:
        push_branch(self.origin, self.mirror, branch="task", oid=oid, expected=expected)

    def stands(self) -> str | None:
        return self.origin.heads().get("refs/heads/task")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_a_branch_is_made_and_moved_on_from_where_it_was_left(place: Place) -> None:
    place.push(place.mine, expected=None)
    assert place.stands() == place.mine
    more = place.commit(Path(place.mirror), "more", place.mine)
    place.push(more, expected=place.mine)
    assert place.stands() == more
    place.push(more, expected=more)


@pytest.mark.parametrize("expected", [None, "f" * 40])
def test_a_branch_that_appeared_since_the_look_is_left_alone_though_it_could_go_forward(
    place: Place, expected: str | None
) -> None:
    run_git(["update-ref", "refs/heads/task", place.first], git_dir=str(place.bare))
    with pytest.raises(ShunterError) as caught:
        place.push(place.mine, expected=expected)
    assert caught.value.code == "BRANCH_TAKEN"
    assert place.stands() == place.first


def test_a_commit_that_origin_has_on_no_branch_is_not_to_be_had(place: Place) -> None:
    with pytest.raises(ShunterError) as caught:
        fetch_base(place.layout, place.mirror, task_id="t2", oid="e" * 40, url=str(place.bare))
    assert caught.value.code == "BASE_UNAVAILABLE" and caught.value.hint


def test_the_accounts_own_settings_cannot_make_a_fetch_prune_or_a_push_more(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / ".gitconfig").write_text(
        f"[fetch]\n\tprune = true\n[push]\n\tfollowTags = true\n[core]\n\thooksPath = {home}/hooks\n"
    )
    (home / "hooks").mkdir()
    (home / "hooks" / "pre-push").write_text("#!/bin/sh\nexit 1\n")
    (home / "hooks" / "pre-push").chmod(0o755)
    monkeypatch.setenv("HOME", str(home))
    run_git(["tag", "-a", "-m", "t", "v1", place.mine], git_dir=place.mirror, env=AUTHOR)
    place.origin = open_origin(place.layout, str(place.bare))
    place.push(place.mine, expected=None)
    assert set(place.origin.heads()) == {"HEAD", "refs/heads/main", "refs/heads/task"}
    fetch_base(place.layout, place.mirror, task_id="t3", oid=place.first, url=str(place.bare))
    refs = run_git(["for-each-ref", "--format=%(refname)"], git_dir=place.mirror).text
    assert "refs/shunter/bases/t1" in refs and "refs/shunter/bases/t3" in refs


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("fatal: Authentication failed for 'https://h/a/'", "ORIGIN_AUTH"),
        ("fatal: could not read Username for 'https://h': terminal prompts disabled", "ORIGIN_AUTH"),
        ("me@h: Permission denied (publickey).\nfatal: Could not read from remote repository.", "ORIGIN_AUTH"),
        ("Host key verification failed.\nfatal: Could not read from remote repository.", "ORIGIN_AUTH"),
        ("remote: Repository not found.\nfatal: repository 'https://h/a/' not found", "ORIGIN_AUTH"),
        ("fatal: '/a' does not appear to be a git repository", "ORIGIN_AUTH"),
        ("fatal: unable to access 'https://h/a/': Could not resolve host: h", "ORIGIN_UNREACHABLE"),
        ("fatal: unable to access 'https://h/a/': The requested URL returned error: 503", "ORIGIN_UNREACHABLE"),
        ("ssh: connect to host h port 22: Connection timed out\nfatal: Could not read", "ORIGIN_UNREACHABLE"),
        ("fatal: the remote end hung up unexpectedly", "ORIGIN_UNREACHABLE"),
        ("git ls-remote did not end within 60 s", "ORIGIN_UNREACHABLE"),
        ("error: No space left on device", "DISK_FULL"),
        ("fatal: something else", "GIT_FAILED"),
    ],
)
def test_what_words_of_git_mean(words: str, code: str) -> None:
    found = failure_of("https://h/a", GitResult(128, b"", words.encode()))
    assert found.code == code
    assert words.splitlines()[0].split(": ", 1)[-1].rstrip("'/") in found.text
