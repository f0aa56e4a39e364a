-- Projects and tasks.

-- name: record_project
-- A checkout as it was seen last; its paths may have changed.
INSERT INTO projects (worktree_id, repo_id, project_id, record)
VALUES (:worktree_id, :repo_id, :project_id, :record)
ON CONFLICT (worktree_id, repo_id, project_id) DO UPDATE SET record = excluded.record;

-- name: load_project
-- The checkout that a task was submitted from.
SELECT record FROM projects
WHERE worktree_id = :worktree_id AND repo_id = :repo_id AND project_id = :project_id;

-- name: insert_task
-- A new task; fails when the id is taken.
INSERT INTO tasks (
    id, title, agent, state, project_id, repo_id, worktree_id, base_oid, base_kind, branch, created_at, model, effort,
    permission, pinned_host, host, closed_at, last_outcome, head_oid, fetched_oid, fetched_ref,
    session_id, options
) VALUES (
    :id, :title, :agent, :state, :project_id, :repo_id, :worktree_id, :base_oid, :base_kind, :branch, :created_at,
    :model, :effort, :permission, :pinned_host, :host, :closed_at, :last_outcome, :head_oid, :fetched_oid, :fetched_ref,
    :session_id, :options
);

-- name: load_task
-- One task by its full id.
SELECT * FROM tasks WHERE id = :id;

-- name: find_tasks
-- The first few tasks whose id begins with the given text: a range of the primary key.
SELECT * FROM tasks WHERE id >= :prefix AND id < :after ORDER BY id LIMIT :limit;

-- name: list_tasks_of_state
-- The newest tasks of one state, along the index.
SELECT * FROM tasks WHERE state = :state ORDER BY created_at DESC, id LIMIT :limit;

-- name: list_project_tasks_of_state
-- The same within one project.
SELECT * FROM tasks WHERE project_id = :project_id AND state = :state ORDER BY created_at DESC, id LIMIT :limit;

-- name: count_tasks
-- How many tasks are in each state; answered from the index alone.
SELECT state, count(*) FROM tasks GROUP BY state;

-- name: move_task
-- The task's state, if it is still the expected one.
UPDATE tasks SET state = :to_state WHERE id = :id AND state = :from_state;

-- name: close_task
-- The end of a task.
UPDATE tasks SET state = 'closed', closed_at = :now WHERE id = :id AND state = :from_state;

-- name: record_task_host
-- Where the task lives: known from acceptance on, taken back when the first acceptance turned out to be none.
UPDATE tasks SET host = :host WHERE id = :id;

-- name: forget_session
-- The next turn starts a session of its own.
UPDATE tasks SET session_id = NULL WHERE id = :id;

-- name: record_task_facts
-- What a turn told about its task; a fact that is not given stays. A known session id is replaced only when the agent
-- went on in another session than it was given.
UPDATE tasks
SET session_id = coalesce(:renamed_session, session_id, :session_id),
    head_oid = coalesce(:head_oid, head_oid),
    fetched_oid = coalesce(:fetched_oid, fetched_oid),
    fetched_ref = coalesce(:fetched_ref, fetched_ref),
    last_outcome = coalesce(:last_outcome, last_outcome)
WHERE id = :id;
