-- mark_items: what became of items when they were acted on. $1 org, $2 operation, $3 numbers, $4 states, $5 fences, $6 notes.
UPDATE redrive.operation_item i SET state = g.state, fence = g.fence, note = g.note
  FROM unnest($3::int[], $4::text[], $5::int[], $6::text[]) AS g(n, state, fence, note)
 WHERE i.org_id = $1 AND i.operation_id = $2 AND i.n = g.n;
