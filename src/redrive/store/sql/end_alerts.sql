-- end_alerts: incidents are over. $1 now, then by incident: $2 org, $3 id, $4 text, $5 the notice that tells of it.
UPDATE redrive.alert a SET over_at = coalesce($1::timestamptz, clock_timestamp()), over_text = n.text, over_notice_id = n.notice_id
  FROM unnest($2::uuid[], $3::uuid[], $4::text[], $5::uuid[]) AS n(org_id, id, text, notice_id)
 WHERE a.org_id = n.org_id AND a.id = n.id AND a.over_at IS NULL
RETURNING a.id;
