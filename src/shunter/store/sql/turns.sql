-- Turns and attempts. Every write names the attempt it belongs to: no row changed means that somebody was faster.

-- name: insert_turn
-- A new turn; fails when the task has an open one.
INSERT INTO turns (
    id, task_id, number, state, step, created_at, attempt_number, uncertain, repeat_number, repeat_limit,
    fresh_session, account
) VALUES (
    :id, :task_id, :number, :state, :step, :created_at, 0, 0, :repeat_number, :repeat_limit, :fresh_session, :account
);

-- name: load_turn
-- One turn by its id.
SELECT * FROM turns WHERE id = :id;

-- name: load_turns
-- All turns of a task, first to last.
SELECT * FROM turns WHERE task_id = :task_id ORDER BY number;

-- name: load_latest_turns
-- The last turn of each of the given tasks (a JSON list of ids).
SELECT turns.* FROM json_each(:task_ids) AS wanted
JOIN turns ON turns.task_id = wanted.value
WHERE turns.number = (SELECT max(number) FROM turns AS other WHERE other.task_id = wanted.value);

-- name: load_open_turn
-- The task's turn that is not over.
SELECT * FROM turns WHERE task_id = :task_id AND step <> 'settled';

-- name: load_open_turns
-- Every turn that is not over, for recovery.
SELECT * FROM turns WHERE step <> 'settled' ORDER BY created_at, id;

-- name: load_turns_under_way
-- Every turn that a dispatcher has begun with and not finished.
SELECT * FROM turns WHERE step NOT IN ('waiting', 'settled') ORDER BY created_at, id;

-- name: has_open_turns
-- Whether anything waits or is under way.
SELECT EXISTS (SELECT 1 FROM turns WHERE step <> 'settled');

-- name: claim_turn
-- Waiting to claimed; nobody may have asked for a cancel, and no other dispatcher may lead.
UPDATE turns
SET step = 'claimed', host = :host, attempt_id = :attempt_id, attempt_number = attempt_number + 1, claimed_at = :now
WHERE id = :id AND step = 'waiting' AND cancel_requested_at IS NULL
    AND NOT EXISTS (SELECT 1 FROM leader WHERE owner_id <> :owner);

-- name: return_turn
-- Back to the queue: everything that belonged to the attempt goes, the number of attempts stays.
UPDATE turns
SET step = 'waiting', state = 'queued', host = NULL, attempt_id = NULL, uncertain = 0, uncertain_reason = NULL,
    claimed_at = NULL, leased_at = NULL, shipped_at = NULL, accepted_at = NULL, started_at = NULL
WHERE id = :id AND attempt_id = :attempt_id AND step = :from_step;

-- name: record_publication
-- What could not be published or fetched at the end is by now.
UPDATE turns SET outcome = :outcome, error_code = NULL, error_text = NULL WHERE id = :id AND step = 'settled';

-- name: move_turn
-- One step on, with what is known by now; a fact that is not given stays. News from the host end the uncertainty.
UPDATE turns
SET step = :to_step,
    state = :state,
    uncertain = 0,
    uncertain_reason = NULL,
    exit_code = coalesce(:exit_code, exit_code),
    signal = coalesce(:signal, signal),
    outcome = coalesce(:outcome, outcome),
    error_code = coalesce(:error_code, error_code),
    error_text = coalesce(:error_text, error_text),
    leased_at = coalesce(:leased_at, leased_at),
    shipped_at = coalesce(:shipped_at, shipped_at),
    accepted_at = coalesce(:accepted_at, accepted_at),
    started_at = coalesce(:started_at, started_at),
    exited_at = coalesce(:exited_at, exited_at),
    ended_at = coalesce(:ended_at, ended_at),
    fetched_at = coalesce(:fetched_at, fetched_at),
    settled_at = coalesce(:settled_at, settled_at)
WHERE id = :id AND attempt_id IS :attempt_id AND step = :from_step;

-- name: mark_uncertain
-- The host has the answer and could, or could not, be asked.
UPDATE turns SET uncertain = :uncertain, uncertain_reason = :reason
WHERE id = :id AND attempt_id = :attempt_id AND step NOT IN ('waiting', 'settled');

-- name: request_cancel
-- The first request stands; later ones change nothing.
UPDATE turns SET cancel_requested_at = :now, cancel_actor = :actor
WHERE id = :id AND step <> 'settled' AND cancel_requested_at IS NULL;

-- name: insert_follow_up
-- The turn that comes once the open one is over, and its row, each as JSON.
INSERT OR REPLACE INTO follow_ups (task_id, turn, place) VALUES (:task_id, :turn, :place);

-- name: load_follow_up
-- At most one a task.
SELECT turn, place FROM follow_ups WHERE task_id = :task_id;

-- name: delete_follow_up
-- It has become a turn, or is not wanted any more.
DELETE FROM follow_ups WHERE task_id = :task_id;

-- name: insert_attempt
-- A fresh attempt, before the host hears of it.
INSERT INTO attempts (id, turn_id, number, host, state, created_at)
VALUES (:id, :turn_id, :number, :host, 'open', :now);

-- name: rename_attempt
-- What was claimed turns out to be an attempt that the host has accepted before.
UPDATE attempts SET id = :found_id WHERE id = :attempt_id;

-- name: adopt_attempt
-- Likewise for the turn.
UPDATE turns SET attempt_id = :found_id WHERE id = :id AND attempt_id = :attempt_id AND step = 'claimed';

-- name: load_attempts
-- All attempts of a turn, first to last.
SELECT id, turn_id, number, host, state, created_at, lease_token, failure_code, ended_at FROM attempts
WHERE turn_id = :turn_id ORDER BY number;

-- name: record_lease_token
-- What the host answered to the request for a lease.
UPDATE attempts SET lease_token = :lease_token WHERE id = :id;

-- name: move_attempt
-- The attempt's state, while it is not over yet.
UPDATE attempts SET state = :state, failure_code = :failure_code, ended_at = :ended_at
WHERE id = :id AND state IN ('open', 'accepted');

-- name: load_attempt_state
-- Whether the attempt was accepted, or is over.
SELECT state FROM attempts WHERE id = :id;
