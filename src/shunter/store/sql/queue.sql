-- The queue: who waits, in which order.

-- name: record_shape
-- What some rows want of a host; known already is fine.
INSERT INTO shapes (pinned_host, requirements) VALUES (:pinned_host, :requirements)
ON CONFLICT (pinned_host, requirements) DO NOTHING;

-- name: insert_row
-- At the end of the queue, or at the place that is given.
INSERT INTO queue (seq, turn_id, task_id, shape_id, priority, summary, not_before)
SELECT :seq, :turn_id, :task_id, id, :priority, :summary, :not_before FROM shapes
WHERE pinned_host = :pinned_host AND requirements = :requirements;

-- name: waiting_rows
-- The first few waiting rows of every shape, in the order of the queue. Rows of one shape are interchangeable, so
-- nothing behind them can be claimed before them, and the cost does not grow with the queue.
SELECT queue.turn_id, queue.task_id, queue.summary, shapes.requirements, queue.priority, shapes.pinned_host,
    queue.not_before, queue.owner, queue.error_code, queue.seq
FROM shapes
JOIN queue ON queue.seq IN (
    SELECT first.seq FROM queue AS first
    WHERE first.shape_id = shapes.id AND first.owner IS NULL AND coalesce(first.not_before, 0) <= :now
    ORDER BY first.priority DESC, first.seq
    LIMIT :per_shape
)
ORDER BY queue.priority DESC, queue.seq;

-- name: load_waiting_first_turns
-- First turns that have waited since before then, in the order of the queue.
SELECT turns.id FROM queue JOIN turns ON turns.id = queue.turn_id
WHERE queue.owner IS NULL AND turns.number = 1 AND turns.created_at < :before
ORDER BY queue.priority DESC, queue.seq;

-- name: list_rows
-- The queue as people see it: rows that wait and rows under way, in order.
SELECT queue.turn_id, queue.task_id, queue.summary, shapes.requirements, queue.priority, shapes.pinned_host,
    queue.not_before, queue.owner, queue.error_code, queue.seq
FROM queue JOIN shapes ON shapes.id = queue.shape_id
ORDER BY queue.priority DESC, queue.seq
LIMIT :limit;

-- name: load_row
-- One row by its turn.
SELECT queue.turn_id, queue.task_id, queue.summary, shapes.requirements, queue.priority, shapes.pinned_host,
    queue.not_before, queue.owner, queue.error_code, queue.seq
FROM queue JOIN shapes ON shapes.id = queue.shape_id
WHERE queue.turn_id = :turn_id;

-- name: next_due
-- When the next deferred row may be claimed.
SELECT min(not_before) FROM queue WHERE owner IS NULL AND not_before IS NOT NULL AND not_before > :now;

-- name: claim_row
-- The row is under way; its place stays.
UPDATE queue SET owner = :owner, not_before = NULL WHERE turn_id = :turn_id;

-- name: return_row
-- The row waits again at its old place.
UPDATE queue SET owner = NULL, not_before = :not_before, error_code = :error_code WHERE turn_id = :turn_id;

-- name: end_pauses
-- Rows that came back from a try wait no longer; the time of a repeat, which was not tried yet, stands.
UPDATE queue SET not_before = NULL WHERE owner IS NULL AND not_before IS NOT NULL
AND (SELECT attempt_number FROM turns WHERE turns.id = queue.turn_id) > 0;

-- name: take_over_rows
-- A new leader takes what another had under way.
UPDATE queue SET owner = :owner WHERE owner IS NOT NULL;

-- name: delete_row
-- The turn is settled.
DELETE FROM queue WHERE turn_id = :turn_id;

-- name: load_shape
-- Which shape the row of a turn has.
SELECT shape_id FROM queue WHERE turn_id = :turn_id;

-- name: delete_unused_shape
-- Shapes that no row has any more would make every look at the queue slower.
DELETE FROM shapes WHERE id = :id AND NOT EXISTS (SELECT 1 FROM queue WHERE queue.shape_id = shapes.id);
