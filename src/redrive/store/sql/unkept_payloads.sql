-- unkept_payloads: inputs of steps that died, of which no snapshot is kept yet. $1 orgs, $2 tasks.
SELECT d.org_id, d.task_id, b.body
  FROM unnest($1::uuid[], $2::uuid[]) AS r(org_id, id)
  JOIN redrive.dead_letter d ON d.org_id = r.org_id AND d.task_id = r.id
  JOIN redrive.event b ON b.org_id = d.org_id AND b.id = d.event_id
 WHERE d.kind = 'step' AND d.payload IS NULL;
