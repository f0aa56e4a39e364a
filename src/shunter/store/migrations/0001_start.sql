-- Schema 1: everything home knows. Never edit a released file; add the next number.
-- application_id and user_version are set by file.py; the words of the CHECKs are those of model.states.

CREATE TABLE projects (
    worktree_id TEXT NOT NULL,
    repo_id TEXT NOT NULL,
    project_id TEXT NOT NULL,
    record TEXT NOT NULL CHECK (json_valid(record)), -- JSON, because a path need not be UTF-8
    PRIMARY KEY (worktree_id, repo_id, project_id)
) WITHOUT ROWID;

CREATE TABLE tasks (
    id TEXT NOT NULL PRIMARY KEY CHECK (length(id) BETWEEN 1 AND 64),
    title TEXT NOT NULL,
    agent TEXT NOT NULL CHECK (agent <> ''),
    state TEXT NOT NULL CHECK (state IN ('queued', 'active', 'open', 'closed', 'abandoned', 'lost')),
    project_id TEXT NOT NULL,
    repo_id TEXT NOT NULL,
    worktree_id TEXT NOT NULL,
    base_oid TEXT NOT NULL CHECK (length(base_oid) IN (40, 64)),
    base_kind TEXT NOT NULL CHECK (base_kind IN ('commit', 'wip')),
    branch TEXT NOT NULL CHECK (branch <> ''),
    created_at REAL NOT NULL,
    model TEXT,
    effort TEXT,
    permission TEXT NOT NULL CHECK (permission IN ('workspace', 'unattended')),
    pinned_host TEXT,
    host TEXT,
    closed_at REAL,
    last_outcome TEXT,
    head_oid TEXT CHECK (length(head_oid) IN (40, 64)),
    fetched_oid TEXT CHECK (length(fetched_oid) IN (40, 64)),
    fetched_ref TEXT CHECK ((fetched_ref IS NULL) = (fetched_oid IS NULL)),
    session_id TEXT CHECK (session_id <> ''),
    options TEXT NOT NULL CHECK (json_valid(options)),
    CHECK ((state = 'closed') = (closed_at IS NOT NULL)),
    FOREIGN KEY (worktree_id, repo_id, project_id) REFERENCES projects (worktree_id, repo_id, project_id)
);

-- `list` reads each state newest first and stops at its limit.
CREATE INDEX tasks_by_state ON tasks (state, created_at DESC, id);
CREATE INDEX tasks_by_project ON tasks (project_id, state, created_at DESC, id);

CREATE TABLE turns (
    id TEXT NOT NULL PRIMARY KEY,
    task_id TEXT NOT NULL REFERENCES tasks (id),
    number INTEGER NOT NULL CHECK (number >= 1),
    state TEXT NOT NULL CHECK (
        state IN ('queued', 'accepted', 'running', 'succeeded', 'failed', 'cancelled', 'timed_out', 'lost')
    ),
    step TEXT NOT NULL CHECK (
        step IN ('waiting', 'claimed', 'leased', 'shipped', 'accepted', 'running', 'ended', 'fetched', 'settled')
    ),
    created_at REAL NOT NULL,
    host TEXT,
    attempt_id TEXT,
    attempt_number INTEGER NOT NULL CHECK (attempt_number >= 0),
    uncertain INTEGER NOT NULL CHECK (uncertain IN (0, 1)),
    uncertain_reason TEXT,
    cancel_requested_at REAL,
    cancel_actor TEXT,
    exit_code INTEGER,
    signal INTEGER,
    outcome TEXT CHECK (outcome IS NULL OR json_valid(outcome)),
    error_code TEXT,
    error_text TEXT,
    claimed_at REAL,
    leased_at REAL,
    shipped_at REAL,
    accepted_at REAL,
    started_at REAL,
    exited_at REAL,
    ended_at REAL,
    fetched_at REAL,
    settled_at REAL,
    UNIQUE (task_id, number),
    CHECK ((step = 'settled') = (settled_at IS NOT NULL)),
    CHECK (step <> 'waiting' OR (attempt_id IS NULL AND host IS NULL AND state = 'queued')),
    CHECK (step IN ('waiting', 'settled') OR (attempt_id IS NOT NULL AND host IS NOT NULL)),
    CHECK (
        step NOT IN ('ended', 'fetched', 'settled')
        OR state IN ('succeeded', 'failed', 'cancelled', 'timed_out', 'lost')
    )
);

-- A task has one turn that is not over.
CREATE UNIQUE INDEX turns_open ON turns (task_id) WHERE step <> 'settled';
-- Recovery reads what was under way without wading through the queue.
CREATE INDEX turns_under_way ON turns (id) WHERE step NOT IN ('waiting', 'settled');

CREATE TABLE attempts (
    id TEXT NOT NULL PRIMARY KEY,
    turn_id TEXT NOT NULL REFERENCES turns (id),
    number INTEGER NOT NULL CHECK (number >= 1),
    host TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('open', 'accepted', 'tombstoned', 'ended', 'failed')),
    created_at REAL NOT NULL,
    lease_token TEXT,
    failure_code TEXT,
    exited_at REAL,
    ended_at REAL,
    UNIQUE (turn_id, number),
    CHECK ((state IN ('tombstoned', 'ended', 'failed')) = (ended_at IS NOT NULL))
);

-- At most one attempt of a turn may be able to start or run (P13).
CREATE UNIQUE INDEX attempts_live ON attempts (turn_id) WHERE state IN ('open', 'accepted');

-- Rows of one shape want the same of a host, so only the first few of a shape can matter for the next claims.
-- pinned_host is '' for no pin: NULLs would not be unique.
CREATE TABLE shapes (
    id INTEGER PRIMARY KEY,
    pinned_host TEXT NOT NULL,
    requirements TEXT NOT NULL CHECK (json_valid(requirements)),
    UNIQUE (pinned_host, requirements)
);

CREATE TABLE queue (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    turn_id TEXT NOT NULL UNIQUE REFERENCES turns (id),
    task_id TEXT NOT NULL REFERENCES tasks (id),
    shape_id INTEGER NOT NULL REFERENCES shapes (id),
    priority INTEGER NOT NULL,
    summary TEXT NOT NULL CHECK (length(summary) <= 200),
    not_before REAL,
    owner TEXT,
    error_code TEXT
);

CREATE INDEX queue_by_shape ON queue (shape_id, owner, priority DESC, seq);
CREATE INDEX queue_in_order ON queue (priority DESC, seq);
CREATE INDEX queue_by_task ON queue (task_id);
CREATE INDEX queue_deferred ON queue (not_before) WHERE owner IS NULL AND not_before IS NOT NULL;

CREATE TABLE events (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    at REAL NOT NULL,
    kind TEXT NOT NULL CHECK (kind <> ''),
    actor TEXT NOT NULL CHECK (actor <> ''),
    task_id TEXT,
    turn_id TEXT,
    attempt_id TEXT,
    from_state TEXT,
    to_state TEXT,
    reason TEXT
);

CREATE INDEX events_by_task ON events (task_id, seq);

CREATE TRIGGER events_stay BEFORE UPDATE ON events
BEGIN
    SELECT RAISE(ABORT, 'events are append only');
END;

CREATE TRIGGER events_remain BEFORE DELETE ON events
BEGIN
    SELECT RAISE(ABORT, 'events are append only');
END;

-- One row for ever: the term must never go back.
CREATE TABLE leader (
    only INTEGER PRIMARY KEY CHECK (only = 1),
    owner_id TEXT,
    host_id TEXT,
    boot_id TEXT,
    pid INTEGER,
    start_time INTEGER,
    term INTEGER NOT NULL CHECK (term >= 0),
    renewed_at REAL NOT NULL,
    ttl_s REAL NOT NULL CHECK (ttl_s > 0),
    CHECK ((owner_id IS NULL) = (host_id IS NULL)),
    CHECK ((owner_id IS NULL) = (boot_id IS NULL)),
    CHECK ((owner_id IS NULL) = (pid IS NULL))
);

INSERT INTO leader (only, term, renewed_at, ttl_s) VALUES (1, 0, 0, 15);
