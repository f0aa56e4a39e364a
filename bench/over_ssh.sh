#!/bin/bash
# over_ssh.sh REPO HOST MIRROR WORK ID COMMAND...
# by_hand.sh for another machine: GIT_SSH_COMMAND is a multiplexed ssh, MIRROR and WORK are paths over there.
set -e
repo=$1 host=$2 mirror=$3 work=$4 id=$5
shift 5
git -C "$repo" push -q "$host:$mirror" "HEAD:refs/heads/task/$id"
printf -v agent '%q ' "$@"
turn="git clone -q --shared -b 'task/$id' '$mirror' '$work' && cd '$work'"
agent="setsid $agent </dev/null >'$work.out' 2>'$work.err'"
if [ -z "$BRING_BACK" ]; then
  exec $GIT_SSH_COMMAND "$host" "$turn && exec $agent"
fi
$GIT_SSH_COMMAND "$host" "$turn && $agent && git add -A &&
  git -c user.name=u -c user.email=u@example.org commit -q -m 'left over' && git push -q origin HEAD"
git -C "$repo" fetch -q "$host:$mirror" "+task/$id:refs/remotes/by-hand/$id"
