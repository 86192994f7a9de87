-- tail_endpoints: those of this id or name, in one org or in all. $1 org (NULL: all), $2 id or name.
SELECT e.id FROM redrive.endpoint e
 WHERE ($1::uuid IS NULL OR e.org_id = $1) AND (e.id::text = lower($2) OR (e.name = $2 AND e.deleted_at IS NULL)) LIMIT 100;
