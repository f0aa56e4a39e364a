"""Whether this host's account can fetch from an origin and push to it, tried for `host check`."""

from __future__ import annotations

from ..wire.errors import ShunterError
from ..wire.ids import new_nonce
from ..wire.messages import OriginAsk, OriginProof, Tried
from .durable import make_scratch
from .gitrun import run_git
from .layout import Layout
from .origin import LOOK_LIMIT_S, Origin, open_origin, push_args, raise_unless_taken
from .remove import remove_tree

PROOF_REFS = "refs/shunter/proof/"


def prove_origin(layout: Layout, ask: OriginAsk) -> OriginProof:
    """Nothing of it stays: the scratch repository goes, and a ref that was pushed is deleted again."""
    origin = open_origin(layout, ask.url)
    scratch = make_scratch(layout.run, "proof-origin-")
    try:
        fetch = _tried(lambda: _fetch(origin, scratch))
        push = _tried(lambda: _push(origin, scratch, writes=ask.writes)) if fetch.done is not None else None
    finally:
        remove_tree(scratch)
    return OriginProof(fetch, push)


def _tried(act) -> Tried:  # type: ignore[no-untyped-def]
    try:
        return Tried(done=act())
    except ShunterError as exc:
        return Tried(error_code=exc.code, error_text=exc.text, hint=exc.hint)


def _fetch(origin: Origin, scratch: str) -> str:
    heads = origin.heads()
    form = ["--object-format=sha256"] if any(len(oid) == 64 for oid in heads.values()) else []
    run_git(["init", "--quiet", "--bare", "--template=", *form, scratch])
    names = [name for name in heads if name == "HEAD" or name.startswith("refs/heads/")]
    if not names:
        return "it answers and has no branch"
    done = origin.git(
        ["fetch", "--quiet", "--no-tags", "--depth=1", "--", origin.url, names[0]],
        git_dir=scratch,
        limit_s=LOOK_LIMIT_S,
    )
    if done.status != 0:
        raise origin.failure(done)
    return f"{names[0]} at {heads[names[0]][:12]} came"


def _push(origin: Origin, scratch: str, *, writes: bool) -> str:
    tree = run_git(["hash-object", "-t", "tree", "-w", "--stdin"], git_dir=scratch, stdin=b"").text
    author = "shunter <shunter@localhost> 1577836800 +0000"
    commit = f"tree {tree}\nauthor {author}\ncommitter {author}\n\nproof of a host; nothing to keep\n".encode()
    oid = run_git(["hash-object", "-t", "commit", "-w", "--stdin"], git_dir=scratch, stdin=commit).text
    # No branch, so that nobody's build starts because of it.
    ref = PROOF_REFS + new_nonce()
    args = push_args(origin.url, f"{oid}:{ref}", ref, None)
    rehearsed = [args[0], "--dry-run", *args[1:]]
    done = origin.git(args if writes else rehearsed, git_dir=scratch, limit_s=LOOK_LIMIT_S)
    raise_unless_taken(origin, done, ref)
    if not writes:
        return "a push was rehearsed: the account is let in, rules and hooks were not asked"
    gone = origin.git(push_args(origin.url, ":" + ref, ref, oid), git_dir=scratch, limit_s=LOOK_LIMIT_S)
    try:
        raise_unless_taken(origin, gone, ref)
    except ShunterError as exc:
        return f"a ref was pushed, and could not be deleted again: {ref} stays there ({exc.text})"
    return "a ref was pushed and deleted again"
