-- item_facts: what the tasks of a page of items are, and how they ended. What retention has removed is missing.
-- $1 org, $2 tasks.
SELECT e.id, e.event_type, e.endpoint_id, e.state, e.error_message, e.category
  FROM redrive.task_entry e WHERE e.org_id = $1 AND e.id = ANY ($2::uuid[]);
