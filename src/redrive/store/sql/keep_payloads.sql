-- keep_payloads: snapshots of what steps that died were given, redacted. $1 orgs, $2 tasks, $3 snapshots (JSON).
UPDATE redrive.dead_letter d SET payload = r.payload
  FROM unnest($1::uuid[], $2::uuid[], $3::text[]) AS r(org_id, id, payload)
 WHERE d.org_id = r.org_id AND d.task_id = r.id;
