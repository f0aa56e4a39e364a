-- Schema 2: hosts that take no new turns because somebody said so. The configuration file says what a host is; this is
-- what passes.

CREATE TABLE drains (
    host TEXT NOT NULL PRIMARY KEY CHECK (host <> ''),
    at REAL NOT NULL,
    actor TEXT NOT NULL CHECK (actor <> ''),
    reason TEXT
) WITHOUT ROWID;
