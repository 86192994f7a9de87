-- step_terms: what is needed to try steps, besides their inputs. $1 orgs, $2 tasks.
SELECT t.org_id, t.id, t.run_id, t.step, u.workflow_id, u.traceparent, u.cancelled_at, s.idempotency_key, s.url,
       CASE WHEN t.edit IS NULL THEN s.problem END AS problem
  FROM unnest($1::uuid[], $2::uuid[]) AS r(org_id, id)
  JOIN redrive.task t ON t.org_id = r.org_id AND t.id = r.id
  JOIN redrive.run u ON u.org_id = t.org_id AND u.id = t.run_id
  JOIN redrive.step s ON s.org_id = t.org_id AND s.run_id = t.run_id AND s.index = t.step;
