-- Branches that go to an origin.

-- name: insert_push
-- A task's branch, reserved from now on; fails when another open task has it.
INSERT INTO pushes (task_id, origin, url, branch, state, updated_at, tries, held)
VALUES (:task_id, :origin, :url, :branch, 'planned', :now, 0, 1);

-- name: find_branch_holder
-- The open task that has the branch, or one that no repository can hold beside it: "a" and "a/b".
SELECT task_id, branch FROM pushes
WHERE origin = :origin AND held = 1
    AND (branch = :branch OR substr(:branch, 1, length(branch) + 1) = branch || '/'
        OR substr(branch, 1, length(:branch) + 1) = :branch || '/');

-- name: load_pushes
-- Of the given tasks (a JSON list of ids).
SELECT pushes.task_id, origin, url, branch, state, updated_at, wanted_oid, pushed_oid, tries, next_try_at, error_code,
    error_text, hint
FROM json_each(:task_ids) AS wanted JOIN pushes ON pushes.task_id = wanted.value;

-- name: due_pushes
-- What is to be tried now, longest due first.
SELECT task_id, origin, url, branch, state, updated_at, wanted_oid, pushed_oid, tries, next_try_at, error_code,
    error_text, hint
FROM pushes WHERE next_try_at <= :now ORDER BY next_try_at, task_id;

-- name: next_push
-- When something is to be tried at the earliest.
SELECT min(next_try_at) FROM pushes WHERE next_try_at IS NOT NULL;

-- name: want_push
-- A turn has published: this commit is wanted on origin, or nothing is.
UPDATE pushes
SET state = :state, wanted_oid = coalesce(:wanted_oid, wanted_oid), tries = 0, next_try_at = :next_try_at,
    error_code = NULL, error_text = NULL, hint = NULL, updated_at = :now
WHERE task_id = :task_id;

-- name: record_push
-- What came of a try, unless another commit is wanted by now.
UPDATE pushes
SET state = :state, pushed_oid = coalesce(:pushed_oid, pushed_oid), tries = tries + 1, next_try_at = :next_try_at,
    error_code = :error_code, error_text = :error_text, hint = :hint, updated_at = :now
WHERE task_id = :task_id AND wanted_oid = :wanted_oid AND state = :from_state;

-- name: release_branch
-- The task is over: its branch's name is free, and nothing happens by itself any more.
UPDATE pushes
SET held = 0, next_try_at = NULL, updated_at = :now,
    state = CASE WHEN state IN ('pushed', 'nothing') THEN state ELSE 'dropped' END
WHERE task_id = :task_id AND held = 1;
