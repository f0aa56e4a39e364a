-- Who leads.

-- name: read_leader
-- The one row.
SELECT owner_id, host_id, boot_id, pid, start_time, term, renewed_at, ttl_s FROM leader;

-- name: take_leadership
-- A new term, if the row is still what the decision was made from.
UPDATE leader
SET owner_id = :owner_id, host_id = :host_id, boot_id = :boot_id, pid = :pid, start_time = :start_time,
    term = term + 1, renewed_at = :now, ttl_s = :ttl_s
WHERE term = :term AND owner_id IS :former AND renewed_at = :renewed_at;

-- name: renew_leadership
-- The same term for longer.
UPDATE leader SET renewed_at = :now WHERE owner_id = :owner_id AND term = :term;

-- name: resign
-- Nobody leads; the term stays. A submit either came before (then there is an open turn, or a push that is due) or will see
-- no leader.
UPDATE leader SET owner_id = NULL, host_id = NULL, boot_id = NULL, pid = NULL, start_time = NULL
WHERE owner_id = :owner_id AND term = :term AND NOT EXISTS (SELECT 1 FROM turns WHERE step <> 'settled')
    AND NOT EXISTS (SELECT 1 FROM pushes WHERE next_try_at IS NOT NULL);
