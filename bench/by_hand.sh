#!/bin/bash
# by_hand.sh REPO MIRROR WORK ID COMMAND...
# What one would write without a dispatcher: base into the mirror, a clone that borrows from it, the agent in there.
# With BRING_BACK set also what comes after: commit what is left over, fetch the branch.
set -e
repo=$1 mirror=$2 work=$3 id=$4
shift 4
git -C "$repo" push -q "$mirror" "HEAD:refs/heads/task/$id"
git clone -q --shared -b "task/$id" "$mirror" "$work"
cd "$work"
if [ -z "$BRING_BACK" ]; then
  exec setsid "$@" </dev/null >"$work.out" 2>"$work.err"
fi
setsid "$@" </dev/null >"$work.out" 2>"$work.err"
git add -A
git -c user.name=u -c user.email=u@example.org commit -q -m "left over"
git push -q origin HEAD
git -C "$repo" fetch -q "$mirror" "+task/$id:refs/remotes/by-hand/$id"
