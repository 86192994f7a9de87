-- count_of: one counter over its shards.
SELECT coalesce(sum(n), 0)::bigint AS n FROM redrive.counter WHERE org_id = $1 AND name = $2;
