-- People: accounts, what they are in which org, their sessions; limits per org.

-- An account belongs to the installation: the same person may be a member of several orgs.
CREATE TABLE redrive.user_account (
  id            uuid PRIMARY KEY,
  email         text NOT NULL UNIQUE CHECK (email = lower(email) AND length(email) BETWEEN 3 AND 254),
  name          text NOT NULL CHECK (length(name) BETWEEN 1 AND 100),
  password_hash text,                            -- argon2id; NULL: signs in by link only
  is_owner      boolean NOT NULL DEFAULT false,  -- OWNER of every org, without a membership
  disabled_at   timestamptz,
  created_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
  last_login_at timestamptz
);
CREATE INDEX user_account_owners ON redrive.user_account (id) WHERE is_owner;

-- No reference to the account: tenant tables refer to nothing outside of their org.
CREATE TABLE redrive.membership (
  org_id        uuid NOT NULL REFERENCES redrive.org,
  user_id       uuid NOT NULL,
  role          text NOT NULL CHECK (role IN ('OWNER', 'ADMIN', 'IT_MANAGER', 'STAFF', 'VIEWER')),
  suspended_at  timestamptz,
  created_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (org_id, user_id)
);
CREATE INDEX membership_of_user ON redrive.membership (user_id, org_id);
CALL redrive.secure('membership');
-- Accounts reach beyond an org: the engine's role makes and changes them, and the memberships with them.
GRANT SELECT ON redrive.membership TO redrive_app;
GRANT SELECT, INSERT, UPDATE, DELETE ON redrive.membership TO redrive_engine;

ALTER TABLE redrive.user_account ENABLE ROW LEVEL SECURITY;
ALTER TABLE redrive.user_account FORCE ROW LEVEL SECURITY;
CREATE POLICY members ON redrive.user_account FOR SELECT TO redrive_app USING (EXISTS (
  SELECT FROM redrive.membership m WHERE m.org_id = (SELECT redrive.current_org()) AND m.user_id = user_account.id));
CREATE POLICY engine ON redrive.user_account TO redrive_engine USING (true) WITH CHECK (true);
GRANT SELECT (id, email, name, is_owner, disabled_at, created_at, last_login_at) ON redrive.user_account TO redrive_app;
GRANT SELECT, INSERT, UPDATE ON redrive.user_account TO redrive_engine;

-- Browser sessions, and the links that begin one. Of both only a hash is stored. `in_org` is where somebody is at the
-- moment, not whose the row is: the app's role sees none of them.
CREATE TABLE redrive.session (
  token_hash    bytea PRIMARY KEY,
  id            uuid NOT NULL UNIQUE,
  user_id       uuid REFERENCES redrive.user_account,  -- NULL: begun by a link that names nobody
  role          text CHECK (role IN ('OWNER', 'ADMIN', 'IT_MANAGER', 'STAFF', 'VIEWER')),
  in_org        uuid NOT NULL REFERENCES redrive.org,
  created_at    timestamptz NOT NULL,
  expires_at    timestamptz NOT NULL,
  source        text,
  CHECK ((user_id IS NULL) = (role IS NOT NULL))
);
CREATE INDEX session_of_user ON redrive.session (user_id);
CREATE INDEX session_by_end ON redrive.session (expires_at);
CREATE TABLE redrive.login_link (
  token_hash    bytea PRIMARY KEY,
  user_id       uuid REFERENCES redrive.user_account,
  role          text CHECK (role IN ('OWNER', 'ADMIN', 'IT_MANAGER', 'STAFF', 'VIEWER')),
  in_org        uuid NOT NULL REFERENCES redrive.org,
  expires_at    timestamptz NOT NULL,
  CHECK ((user_id IS NULL) = (role IS NOT NULL))
);
CREATE INDEX login_link_by_end ON redrive.login_link (expires_at);
-- Failed logins by e-mail and by address, both hashed: what is typed into the wrong field does not stay here.
CREATE TABLE redrive.login_attempt (
  subject       bytea PRIMARY KEY,
  failures      integer NOT NULL CHECK (failures >= 0),
  last_at       timestamptz NOT NULL
);
CREATE INDEX login_attempt_by_age ON redrive.login_attempt (last_at);
GRANT SELECT, INSERT, UPDATE, DELETE ON redrive.session, redrive.login_link, redrive.login_attempt TO redrive_engine;

-- What an org may use, where it differs from the defaults. Apart from the org, whose row the app may change.
CREATE TABLE redrive.org_limits (
  org_id        uuid PRIMARY KEY REFERENCES redrive.org,
  spec          jsonb NOT NULL,
  updated_at    timestamptz NOT NULL DEFAULT clock_timestamp()
);
CALL redrive.secure('org_limits');
GRANT SELECT ON redrive.org_limits TO redrive_app;
GRANT SELECT, INSERT, UPDATE ON redrive.org_limits TO redrive_engine;

-- Keys: only those who admit people make and revoke them, and nobody gives what is above themselves.
DROP POLICY changers_add ON redrive.api_key;
CREATE POLICY changers_add ON redrive.api_key AS RESTRICTIVE FOR INSERT TO redrive_app WITH CHECK (
  CASE (SELECT current_setting('redrive.role', true)) WHEN 'OWNER' THEN true WHEN 'ADMIN' THEN role <> 'OWNER' ELSE false END);
DROP POLICY changers_change ON redrive.api_key;
CREATE POLICY changers_change ON redrive.api_key AS RESTRICTIVE FOR UPDATE TO redrive_app USING (
  CASE (SELECT current_setting('redrive.role', true)) WHEN 'OWNER' THEN true WHEN 'ADMIN' THEN role <> 'OWNER' ELSE false END);

-- An org as people see it. Whoever asks for none of its sums does not pay for them.
CREATE VIEW redrive.org_entry WITH (security_invoker = true) AS
SELECT o.org_id, o.name, o.created_at, (SELECT l.spec FROM redrive.org_limits l WHERE l.org_id = o.org_id) AS limits,
       (SELECT coalesce(sum(c.n), 0)::bigint FROM redrive.counter c
         WHERE c.org_id = o.org_id AND c.name = 'event.bytes') AS stored_bytes,
       (SELECT count(*) FROM redrive.endpoint e WHERE e.org_id = o.org_id AND e.deleted_at IS NULL) AS endpoints
  FROM redrive.org o;
GRANT SELECT ON redrive.org_entry TO redrive_app, redrive_engine;
