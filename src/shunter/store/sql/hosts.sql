-- Hosts that take no new turns.

-- name: drain_host
-- The first word stands.
INSERT INTO drains (host, at, actor, reason) VALUES (:host, :at, :actor, :reason) ON CONFLICT (host) DO NOTHING;

-- name: enable_host
-- It takes turns again.
DELETE FROM drains WHERE host = :host;

-- name: list_drains
-- All of them; there are few.
SELECT host, at, actor, reason FROM drains ORDER BY host;
