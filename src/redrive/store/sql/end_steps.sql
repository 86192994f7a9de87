-- end_steps: steps whose tasks have just succeeded, once each; answers what is needed to go on with their runs, which are locked.
-- A result that is reported after its lease was given back, or a second time, ends nothing.
-- $1 now (NULL: the database's clock), then an array each: orgs, runs, indexes, tasks, outputs, whether an output was cut.
WITH ended AS (
  UPDATE redrive.step s SET done_at = coalesce($1::timestamptz, clock_timestamp()), output = r.output, output_is_cut = r.is_cut
    FROM unnest($2::uuid[], $3::uuid[], $4::int[], $5::uuid[], $6::bytea[], $7::bool[])
      AS r(org_id, run_id, index, task_id, output, is_cut)
   WHERE s.org_id = r.org_id AND s.run_id = r.run_id AND s.index = r.index AND s.task_id = r.task_id AND s.done_at IS NULL
     AND EXISTS (SELECT FROM redrive.task t WHERE t.org_id = r.org_id AND t.id = r.task_id AND t.state = 'succeeded')
  RETURNING s.org_id, s.run_id, s.index, coalesce(octet_length(s.output), 0) AS bytes),
locked AS MATERIALIZED (
  SELECT u.org_id, u.id, u.workflow_id, u.workflow, u.steps, u.status, u.correlation_id, u.created_by, u.cancelled_at, u.stop_after, u.overrides,
         e.index, e.bytes + octet_length(u.input) AS bytes
    FROM ended e JOIN redrive.run u ON u.org_id = e.org_id AND u.id = e.run_id
   ORDER BY u.org_id, u.id FOR UPDATE OF u)
SELECT l.org_id, l.id, l.workflow_id, l.workflow, l.steps, l.status, l.correlation_id, l.created_by, l.cancelled_at, l.stop_after, l.overrides, l.index,
       o.done, o.others, o.tasks, o.keys, l.bytes + o.bytes AS bytes, coalesce($1::timestamptz, clock_timestamp()) AS now
  FROM locked l
 -- as they were before this statement: without the one that has just ended
 CROSS JOIN LATERAL (
   SELECT array_agg(s.index) FILTER (WHERE s.done_at IS NOT NULL) AS done, coalesce(sum(octet_length(s.output)), 0)::bigint AS bytes,
          array_agg(s.index) FILTER (WHERE s.done_at IS NULL) AS others, array_agg(s.task_id) FILTER (WHERE s.done_at IS NULL) AS tasks,
          array_agg(s.idempotency_key) FILTER (WHERE s.done_at IS NULL) AS keys
     FROM redrive.step s WHERE s.org_id = l.org_id AND s.run_id = l.id AND s.index <> l.index) o;
