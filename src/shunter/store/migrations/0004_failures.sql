-- Schema 4: what follows from failed turns. A turn with a repeat number repeats the one before it, unasked. An account is an
-- agent with the login that it has on a host; clearances say from when on its failures count again.

ALTER TABLE turns ADD COLUMN repeat_number INTEGER NOT NULL DEFAULT 0 CHECK (repeat_number >= 0);
ALTER TABLE turns ADD COLUMN repeat_limit INTEGER NOT NULL DEFAULT 0 CHECK (repeat_limit >= 0);
ALTER TABLE turns ADD COLUMN fresh_session INTEGER NOT NULL DEFAULT 0 CHECK (fresh_session IN (0, 1));
ALTER TABLE turns ADD COLUMN account TEXT CHECK (account <> '');

-- The newest success and the failures since then, without wading through what ended before.
CREATE INDEX turns_by_account ON turns (host, account, state, settled_at) WHERE account IS NOT NULL;

CREATE TABLE clearances (
    host TEXT NOT NULL CHECK (host <> ''),
    account TEXT NOT NULL CHECK (account <> ''),
    at REAL NOT NULL,
    actor TEXT NOT NULL CHECK (actor <> ''),
    PRIMARY KEY (host, account)
) WITHOUT ROWID;
