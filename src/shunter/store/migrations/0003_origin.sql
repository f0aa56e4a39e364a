-- Schema 3: branches that go to an origin besides home. The host's outbox is the authority; this is what home knows of
-- it and when it asks again.

CREATE TABLE pushes (
    task_id TEXT NOT NULL PRIMARY KEY REFERENCES tasks (id),
    origin TEXT NOT NULL CHECK (origin <> ''),
    url TEXT NOT NULL CHECK (url <> ''),
    branch TEXT NOT NULL CHECK (branch <> ''),
    state TEXT NOT NULL CHECK (
        state IN ('planned', 'nothing', 'pending', 'failed', 'refused', 'pushed', 'dropped')
    ),
    updated_at REAL NOT NULL,
    wanted_oid TEXT CHECK (length(wanted_oid) IN (40, 64)),
    pushed_oid TEXT CHECK (length(pushed_oid) IN (40, 64)),
    tries INTEGER NOT NULL CHECK (tries >= 0),
    next_try_at REAL,
    error_code TEXT,
    error_text TEXT,
    hint TEXT,
    held INTEGER NOT NULL CHECK (held IN (0, 1)),
    CHECK (next_try_at IS NULL OR state IN ('pending', 'failed')),
    CHECK (state <> 'pushed' OR pushed_oid = wanted_oid)
) WITHOUT ROWID;

-- While a task is open its branch is its own.
CREATE UNIQUE INDEX pushes_branch ON pushes (origin, branch) WHERE held = 1;
CREATE INDEX pushes_due ON pushes (next_try_at) WHERE next_try_at IS NOT NULL;
