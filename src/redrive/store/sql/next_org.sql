-- next_org: the org that follows a name, in the order of names. $1 name (NULL: the first of all).
SELECT o.org_id, o.name FROM redrive.org o WHERE o.name > coalesce($1::text, '') ORDER BY o.name LIMIT 1;
