-- Accounts on hosts, as far as turns ran there.

-- name: list_accounts
-- Of one host, by name: each step jumps to the next account along the index.
WITH RECURSIVE found (account) AS (
    SELECT min(account) FROM turns WHERE host = :host AND account IS NOT NULL
    UNION ALL
    SELECT (SELECT min(account) FROM turns WHERE host = :host AND account > found.account)
    FROM found WHERE found.account IS NOT NULL
)
SELECT account FROM found WHERE account IS NOT NULL;

-- name: load_failures
-- Newest first: what failed since a turn ended well, and since somebody cleared the account.
SELECT * FROM turns
WHERE host = :host AND account = :account AND state = 'failed' AND outcome IS NOT NULL
    AND settled_at > coalesce(
        (SELECT max(settled_at) FROM turns WHERE host = :host AND account = :account AND state = 'succeeded'), 0
    )
    AND settled_at > coalesce((SELECT at FROM clearances WHERE host = :host AND account = :account), 0)
ORDER BY settled_at DESC
LIMIT :limit;

-- name: clear_account
-- What failed until now does not count any more.
INSERT INTO clearances (host, account, at, actor) VALUES (:host, :account, :at, :actor)
ON CONFLICT (host, account) DO UPDATE SET at = excluded.at, actor = excluded.actor;

-- name: load_clearance
-- When the account was cleared last.
SELECT at FROM clearances WHERE host = :host AND account = :account;
