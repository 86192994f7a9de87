-- get_edit_base: what a further edit begins with: the original, the edit in force, how many there are; and how large a
-- payload of the org may be, where that is set. $1 org, $2 task.
-- A payload that is larger than what may be handed in came from a broker, and is told by its size alone.
SELECT CASE WHEN octet_length(b.body) <= 1048576 THEN b.body END AS original, octet_length(b.body) AS original_bytes, x.body, x.headers,
       (SELECT count(*)::int FROM redrive.edit n WHERE n.org_id = t.org_id AND n.task_id = t.id) AS edits,
       (SELECT (l.spec ->> 'max_payload_bytes')::int FROM redrive.org_limits l WHERE l.org_id = t.org_id) AS max_bytes
  FROM redrive.task t
  JOIN redrive.event b ON b.org_id = t.org_id AND b.id = t.event_id
  LEFT JOIN redrive.edit x ON x.org_id = t.org_id AND x.task_id = t.id AND x.number = t.edit
 WHERE t.org_id = $1 AND t.id = $2;
