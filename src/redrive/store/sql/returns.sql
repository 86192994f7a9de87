-- returns: where messages of a broker go back to. $1 orgs, $2 tasks.
SELECT b.org_id, b.task_id, b.origin, b.properties, d.replays
  FROM unnest($1::uuid[], $2::uuid[]) AS r(org_id, task_id)
  JOIN redrive.broker_message b ON b.org_id = r.org_id AND b.task_id = r.task_id
  JOIN redrive.dead_letter d ON d.org_id = b.org_id AND d.task_id = b.task_id;
