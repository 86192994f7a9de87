-- delete_events: events with all that belongs to them; answers how much went. Whoever asks holds the tasks locked, all of
-- them finished. The dead letters' foreign key is looked at when the statement ends: they are gone by then.
-- $1 org, $2 ids.
WITH tasks AS MATERIALIZED (
  SELECT t.id FROM redrive.task t WHERE t.org_id = $1 AND t.event_id = ANY ($2::uuid[])),
letters AS (
  DELETE FROM redrive.dead_letter d USING tasks t WHERE d.org_id = $1 AND d.task_id = t.id RETURNING 1),
tries AS (
  DELETE FROM redrive.attempt a USING tasks t WHERE a.org_id = $1 AND a.task_id = t.id RETURNING 1),
gone AS (
  DELETE FROM redrive.task d USING tasks t WHERE d.org_id = $1 AND d.id = t.id RETURNING 1),
events AS (
  DELETE FROM redrive.event e WHERE e.org_id = $1 AND e.id = ANY ($2::uuid[]) RETURNING octet_length(e.body) AS bytes)
SELECT (SELECT count(*) FROM events) AS events, (SELECT count(*) FROM gone) AS tasks, (SELECT count(*) FROM tries) AS attempts,
       (SELECT count(*) FROM letters) AS dead_letters, (SELECT coalesce(sum(bytes), 0)::bigint FROM events) AS bytes;
