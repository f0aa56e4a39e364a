-- Schema 5: a message that ends the turn under way is kept until that turn is over, and is the next one then.

CREATE TABLE follow_ups (
    task_id TEXT NOT NULL PRIMARY KEY REFERENCES tasks (id),
    turn TEXT NOT NULL CHECK (turn <> ''),
    place TEXT NOT NULL CHECK (place <> '')
) WITHOUT ROWID;
