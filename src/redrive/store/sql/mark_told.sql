-- mark_told: $1 now, $2 orgs, $3 notices.
UPDATE redrive.notice n SET told_at = coalesce($1::timestamptz, clock_timestamp())
  FROM unnest($2::uuid[], $3::uuid[]) AS r(org_id, id)
 WHERE n.org_id = r.org_id AND n.id = r.id;
