-- Endpoints that reach people: mail, and the services that apprise speaks to.

ALTER TABLE redrive.endpoint
  DROP CONSTRAINT endpoint_kind_check,
  ADD CONSTRAINT endpoint_kind_check CHECK (kind IN ('http', 'relay', 'rabbitmq', 'mail', 'apprise')),
  ADD COLUMN mail_to         text[] CHECK (cardinality(mail_to) BETWEEN 1 AND 20),
  ADD COLUMN apprise_service text CHECK (length(apprise_service) BETWEEN 1 AND 31),  -- what may be shown of the URL: slack, telegram, …
  ADD COLUMN apprise_sealed  bytea,                                                -- the URL, which is a secret
  ADD CHECK ((kind = 'mail') = (mail_to IS NOT NULL)),
  ADD CHECK ((kind = 'apprise') = (apprise_sealed IS NOT NULL)),
  ADD CHECK ((apprise_sealed IS NULL) = (apprise_service IS NULL));

-- config_of: as in 0038, and whom it reaches.
CREATE OR REPLACE FUNCTION redrive.config_of(p_org uuid, p_endpoint uuid) RETURNS jsonb LANGUAGE sql STABLE AS $$
  SELECT jsonb_build_object('id', e.id, 'name', e.name, 'kind', e.kind, 'url', redrive.redact_url(e.url),
                            'event_types', e.event_types, 'policy', e.policy, 'ordered', e.ordered,
                            'external_system', e.external_system, 'timeout_s', e.timeout_s,
                            'max_in_flight', e.max_in_flight, 'rate_per_s', e.rate_per_s,
                            'disabled', e.disabled_at IS NOT NULL, 'deleted', e.deleted_at IS NOT NULL)
         || CASE e.kind WHEN 'rabbitmq' THEN jsonb_build_object('exchange', e.exchange, 'routing_key', e.routing_key)
                        WHEN 'mail' THEN jsonb_build_object('to', e.mail_to)
                        WHEN 'apprise' THEN jsonb_build_object('service', e.apprise_service)
                        ELSE '{}' END
    FROM redrive.endpoint e WHERE e.org_id = p_org AND e.id = p_endpoint
$$;
