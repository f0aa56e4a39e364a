-- Schema 4: turns that nobody asked for. A turn with a repeat number repeats the one before it.

ALTER TABLE turns ADD COLUMN repeat_number INTEGER NOT NULL DEFAULT 0 CHECK (repeat_number >= 0);
ALTER TABLE turns ADD COLUMN repeat_limit INTEGER NOT NULL DEFAULT 0 CHECK (repeat_limit >= 0);
