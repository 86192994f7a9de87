-- Addresses that webhooks come in at: each relay endpoint has one, known by a token in it.

ALTER TABLE redrive.endpoint
  ADD COLUMN hook_lookup   bytea,  -- the first bytes of the hash: found by index, then compared in constant time
  ADD COLUMN hook_hash     bytea,
  ADD COLUMN hook_sealed   bytea,  -- the token itself, to be shown again to those who may change the endpoint
  ADD COLUMN verify_scheme text CHECK (verify_scheme IN ('standard', 'github', 'stripe', 'slack')),
  ADD COLUMN verify_sealed bytea,  -- what its sender signs with
  ADD CHECK ((kind = 'relay') = (hook_hash IS NOT NULL)),
  ADD CHECK ((hook_hash IS NULL) = (hook_lookup IS NULL) AND (hook_hash IS NULL) = (hook_sealed IS NULL)),
  ADD CHECK ((verify_scheme IS NULL) = (verify_sealed IS NULL)),
  ADD CHECK (verify_scheme IS NULL OR kind = 'relay');
CREATE INDEX endpoint_hook ON redrive.endpoint (hook_lookup) WHERE hook_lookup IS NOT NULL AND deleted_at IS NULL;
