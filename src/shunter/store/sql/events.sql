-- The audit trail.

-- name: insert_event
-- One line more.
INSERT INTO events (at, kind, actor, task_id, turn_id, attempt_id, from_state, to_state, reason)
VALUES (:at, :kind, :actor, :task_id, :turn_id, :attempt_id, :from_state, :to_state, :reason);

-- name: events_since
-- What happened after the given line.
SELECT at, kind, actor, task_id, turn_id, attempt_id, from_state, to_state, reason, seq FROM events
WHERE seq > :seq ORDER BY seq LIMIT :limit;

-- name: task_events_since
-- What happened to one task after the given line.
SELECT at, kind, actor, task_id, turn_id, attempt_id, from_state, to_state, reason, seq FROM events
WHERE task_id = :task_id AND seq > :seq ORDER BY seq LIMIT :limit;

-- name: newest_event
-- The number of the last line.
SELECT coalesce(max(seq), 0) FROM events;
