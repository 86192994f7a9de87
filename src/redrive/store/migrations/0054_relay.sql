-- Keys of hubs: they may connect as a hub of a relay, and do nothing else. endpoint_id: of this relay only.
ALTER TABLE redrive.api_key DROP CONSTRAINT api_key_scope_check;
ALTER TABLE redrive.api_key ADD CONSTRAINT api_key_scope_check CHECK (scope IN ('produce', 'read', 'relay'));
ALTER TABLE redrive.api_key ADD COLUMN endpoint_id uuid CHECK (endpoint_id IS NULL OR scope = 'relay');
