-- step_terms: what is needed to try steps, besides their inputs. A person's edit does away with a problem of the input, and with no
-- other: problems begin with the field they are about (core/steps.py). $1 orgs, $2 tasks.
SELECT t.org_id, t.id, t.run_id, t.step, u.workflow_id, u.traceparent, u.cancelled_at, s.idempotency_key, s.url, s.headers,
       CASE WHEN t.edit IS NULL OR s.problem !~ '^(body|input|payload)[. ]' THEN s.problem END AS problem
  FROM unnest($1::uuid[], $2::uuid[]) AS r(org_id, id)
  JOIN redrive.task t ON t.org_id = r.org_id AND t.id = r.id
  JOIN redrive.run u ON u.org_id = t.org_id AND u.id = t.run_id
  JOIN redrive.step s ON s.org_id = t.org_id AND s.run_id = t.run_id AND s.index = t.step;
