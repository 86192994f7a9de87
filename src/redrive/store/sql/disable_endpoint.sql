-- disable_endpoint: the engine stops an endpoint (its tasks are held as they fall due), says so in the audit, and has people told.
-- $1 now, $2 org, $3 endpoint, $4 reason; $5 the URL that it was found to be so with, $6 since when it does nothing but fail (NULL:
-- that is not why). What a person or a success has changed since is left alone. The URL is asked of the row itself: where an edit
-- is being committed at this moment, it is asked again.
WITH disabled AS (
  UPDATE redrive.endpoint e SET disabled_at = coalesce($1::timestamptz, clock_timestamp()), disabled_reason = $4, disabled_by_engine = true,
         updated_at = coalesce($1::timestamptz, clock_timestamp())
   WHERE e.org_id = $2 AND e.id = $3 AND e.disabled_at IS NULL AND e.deleted_at IS NULL AND e.url IS NOT DISTINCT FROM $5::text
     AND ($6::timestamptz IS NULL OR EXISTS (
       SELECT FROM redrive.endpoint_state s WHERE s.org_id = $2 AND s.endpoint_id = $3 AND s.failing_since = $6))
  RETURNING e.org_id, e.id, e.name, e.disabled_at),
audited AS (
  INSERT INTO redrive.audit (org_id, id, at, actor, action, subject_kind, subject_id, because)
  SELECT org_id, redrive.uuid7(), disabled_at, 'engine', 'endpoint.disable', 'endpoint', id, $4 FROM disabled)
SELECT d.id, redrive.note(
         d.org_id, 'endpoint.disabled', 'error', 'endpoint', d.id,
         format('Endpoint "%s" was disabled: %s What is for it is held. Enable it when it can receive again.', d.name,
                rtrim(left($4, 500), '. ') || '.'),
         jsonb_build_object('endpoint_id', d.id, 'endpoint', d.name, 'reason', left($4, 500)), d.disabled_at)
  FROM disabled d;
