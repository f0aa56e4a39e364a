"""What a follow-up goes on from: the result that was published here, unless home has one that this host lacks.

A host whose data root was made anew, or put back as an older copy, does not know what home was given. To go on from
what stands here would replace a delivered result with a history that lacks it. So the acceptance names home's result
(`JobSpec.result_oid`), and one that this host did not publish is asked for: home sends the commit as it sends a base,
the workspace that stands is moved aside, and the next one is made from home's result.
"""

from __future__ import annotations

import os
from typing import List, Optional, Tuple

from ..wire.codec import loads
from ..wire.errors import ShunterError
from ..wire.ids import checked_oid
from ..wire.messages import End, JobSpec
from .gitrun import os_errors, run_git
from .layout import Layout
from .ledger import Ledger
from .mirror import move_ref, result_ref
from .refs import published_head


def find_start(layout: Layout, ledger: Ledger, spec: JobSpec) -> Tuple[Optional[str], Tuple[str, ...]]:
    """The result that the turn goes on from, None for the base, and what is to be said of it.

    Under the task's lock. Harmless when repeated. Raises RESULT_UNKNOWN until home has sent a result that is not here.
    """
    if spec.number == 1:
        return None, ()
    mirror = layout.mirror(spec.project_id)
    head, wanted = published_head(mirror, spec.task_id), spec.result_oid
    if wanted is None or head == wanted or _leads_to(mirror, head, _published(ledger, spec.task_id), wanted):
        return head, ()
    if run_git(["cat-file", "-e", checked_oid(wanted) + "^{commit}"], git_dir=mirror, allowed=()).status != 0:
        text = f"home has {wanted} of task {spec.task_id}, which is not in this data root"
        raise ShunterError("RESULT_UNKNOWN", text, hint="put the newer data root back")
    notices = [f"this host did not know the result {wanted[:12]} any more; the turn went on from it as home has it"]
    place = layout.workspace(spec.task_id)
    if os.path.lexists(place):
        aside = f"{place}.before-{spec.attempt_id}"
        with os_errors("IO", f"the workspace {place} could not be moved aside"):
            os.rename(place, aside)
        notices.append(f"the workspace that stood there is now {aside}")
    move_ref(mirror, result_ref(spec.task_id), wanted)
    return wanted, tuple(notices)


def _published(ledger: Ledger, task_id: str) -> List[str]:
    told = (row["end"] for row in ledger.attempts_of(task_id))
    ends = [loads(End, each, where="ledger", code="LEDGER_DAMAGED") for each in told if each]
    return [end.publication.head_oid for end in ends if end.publication is not None]


def _leads_to(mirror: str, head: Optional[str], published: List[str], wanted: str) -> bool:
    """Whether the head that stands came after what home has: home may lack the last one, an agent rewrite history."""
    if head is None or wanted not in published:
        return False
    if head == published[-1]:
        return True
    return run_git(["merge-base", "--is-ancestor", wanted, head], git_dir=mirror, allowed=()).status == 0
