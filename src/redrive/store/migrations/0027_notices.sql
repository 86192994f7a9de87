-- Notices: what people should hear of. Each is written in the transaction that makes it so, and told afterwards by a herald.

CREATE TABLE redrive.notice (
  org_id        uuid NOT NULL,
  id            uuid NOT NULL,
  at            timestamptz NOT NULL,
  kind          text NOT NULL,             -- 'dead_letter', 'endpoint.disabled', …: told as an event of the type redrive.<kind>
  severity      text NOT NULL CHECK (severity IN ('info', 'warning', 'error')),
  subject_kind  text NOT NULL,
  subject_id    uuid,
  text          text NOT NULL,             -- for a person
  facts         jsonb NOT NULL,            -- for a program; never a payload, a secret or a whole URL
  told_at       timestamptz,               -- when a herald had handed it to every way out
  calls         integer NOT NULL DEFAULT 0,  -- of the callbacks of Python programs
  call_at       timestamptz,               -- not before then is another one made
  called_at     timestamptz,               -- when one had ended well, or was the last
  PRIMARY KEY (org_id, id)
);
CREATE INDEX notice_untold ON redrive.notice (at, id) WHERE told_at IS NULL;
CREATE INDEX notice_uncalled ON redrive.notice (at, id) WHERE called_at IS NULL AND kind = 'dead_letter';
CREATE INDEX notice_by_age ON redrive.notice (org_id, at, id);
CREATE INDEX notice_by_kind ON redrive.notice (org_id, kind, at, id);
CALL redrive.secure('notice');
GRANT SELECT, INSERT ON redrive.notice TO redrive_app, redrive_engine;
GRANT UPDATE (told_at, calls, call_at, called_at) ON redrive.notice TO redrive_engine;
GRANT SELECT, DELETE ON redrive.notice TO redrive_janitor;
CREATE POLICY janitor_select ON redrive.notice FOR SELECT TO redrive_janitor USING (true);
CREATE POLICY janitor_delete ON redrive.notice FOR DELETE TO redrive_janitor USING (true);

-- How many more there would have been of a kind. A transaction counts in a shard of its own, as the counters do (see own_shard); the
-- herald makes one notice of all of them, see fold_notices.sql.
CREATE TABLE redrive.notice_more (
  org_id    uuid NOT NULL,
  kind      text NOT NULL,
  shard     smallint NOT NULL,
  severity  text NOT NULL,
  since     timestamptz NOT NULL,
  until     timestamptz NOT NULL,
  n         bigint NOT NULL,
  PRIMARY KEY (org_id, kind, shard)
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_scale_factor = 0);
CALL redrive.secure('notice_more');
GRANT SELECT, INSERT, UPDATE ON redrive.notice_more TO redrive_app, redrive_engine;
GRANT DELETE ON redrive.notice_more TO redrive_engine;

-- notice_room: how many notices of a kind an org may still get one by one. Twenty in any minute, give or take those that
-- transactions write at the same moment: they do not see each other's.
CREATE FUNCTION redrive.notice_room(p_org uuid, p_kind text, p_at timestamptz) RETURNS integer LANGUAGE sql STABLE AS $$
  SELECT 20 - count(*)::integer
    FROM (SELECT FROM redrive.notice n
           WHERE n.org_id = p_org AND n.kind = p_kind AND n.at > p_at - interval '1 minute' LIMIT 20) lately
$$;

CREATE FUNCTION redrive.note_more(p_org uuid, p_kind text, p_severity text, p_at timestamptz, p_n bigint)
RETURNS void LANGUAGE sql VOLATILE AS $$
  INSERT INTO redrive.notice_more AS m (org_id, kind, shard, severity, since, until, n)
  VALUES (p_org, p_kind, redrive.own_shard(), p_severity, p_at, p_at, p_n)
  ON CONFLICT (org_id, kind, shard) DO UPDATE SET
         n = m.n + excluded.n, since = least(m.since, excluded.since), until = greatest(m.until, excluded.until)
$$;

-- note: write a notice. Answers its id; NULL where the org has had so many of its kind that it is only counted.
CREATE FUNCTION redrive.note(
  p_org uuid, p_kind text, p_severity text, p_subject_kind text, p_subject_id uuid, p_text text, p_facts jsonb DEFAULT '{}',
  p_at timestamptz DEFAULT NULL)
RETURNS uuid LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_at CONSTANT timestamptz := coalesce(p_at, clock_timestamp());
  v_id CONSTANT uuid := redrive.uuid7();
BEGIN
  IF redrive.notice_room(p_org, p_kind, v_at) <= 0 THEN
    PERFORM redrive.note_more(p_org, p_kind, p_severity, v_at, 1);
    RETURN NULL;
  END IF;
  INSERT INTO redrive.notice (org_id, id, at, kind, severity, subject_kind, subject_id, text, facts)
  VALUES (p_org, v_id, v_at, p_kind, p_severity, p_subject_kind, p_subject_id, left(p_text, 1000), p_facts);
  RETURN v_id;
END $$;

-- announces: whether people are told of a death under its policy's spec. core/decide.py says the same; a test compares them.
CREATE FUNCTION redrive.announces(p_reason text, p_spec jsonb) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT coalesce((p_spec ->> 'notify')::boolean, true)
     AND NOT (p_reason = 'permanent' AND coalesce((p_spec ->> 'quiet_permanent')::boolean, false))
$$;

-- note_deaths: a notice for each of these dead letters that is to be announced, as many as there is room for; the others are
-- counted. Those that are told one by one are of as many causes as there are.
CREATE FUNCTION redrive.note_deaths(p_orgs uuid[], p_tasks uuid[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  g       record;
  v_room  integer;
BEGIN
  FOR g IN
    SELECT a.org_id, max(a.at) AS at, count(*)::integer AS n, array_agg(a.task_id ORDER BY a.turn, a.task_id) AS tasks
      FROM (SELECT d.org_id, d.task_id, d.created_at AS at,
                   row_number() OVER (PARTITION BY d.org_id, d.fingerprint ORDER BY d.task_id) AS turn
              FROM unnest(p_orgs, p_tasks) AS r(org_id, task_id)
              JOIN redrive.dead_letter d ON d.org_id = r.org_id AND d.task_id = r.task_id
              JOIN redrive.task t ON t.org_id = d.org_id AND t.id = d.task_id
              JOIN redrive.policy p ON p.org_id = t.org_id AND p.id = t.policy_id
             WHERE t.is_test IS NOT TRUE AND redrive.announces(d.reason, p.spec)) a
     GROUP BY a.org_id ORDER BY a.org_id
  LOOP
    v_room := greatest(redrive.notice_room(g.org_id, 'dead_letter', g.at), 0);
    INSERT INTO redrive.notice (org_id, id, at, kind, severity, subject_kind, subject_id, text, facts)
    SELECT d.org_id, redrive.uuid7(), d.created_at, 'dead_letter', 'error', 'dead_letter', d.task_id,
           format('%s for %s is a dead letter: %s. The error: %s Retry, resolve or ignore it once its cause is dealt with.',
                  left(d.event_type, 200), coalesce('endpoint "' || (d.config ->> 'name') || '"', 'its handler'),
                  CASE d.reason WHEN 'permanent' THEN 'another try would not help'
                                WHEN 'exhausted' THEN 'its retries are used up'
                                ELSE 'it is older than its policy allows' END,
                  rtrim(left(d.error_message, 300), '. ') || '.'),
           jsonb_build_object('task_id', d.task_id, 'event_id', d.event_id, 'event_type', left(d.event_type, 200),
                              'external_system', left(d.external_system, 200), 'endpoint_id', d.endpoint_id,
                              'endpoint', d.config ->> 'name', 'reason', d.reason, 'category', d.category,
                              'fingerprint', d.fingerprint, 'generation', d.generation)
      FROM unnest(g.tasks[1:v_room]) AS r(task_id)
      JOIN redrive.dead_letter d ON d.org_id = g.org_id AND d.task_id = r.task_id;
    IF g.n > v_room THEN
      PERFORM redrive.note_more(g.org_id, 'dead_letter', 'error', g.at, g.n - v_room);
    END IF;
  END LOOP;
END $$;

-- Whoever writes a death, its notice is written with it. A task that was redriven and died again is told again: by then its letter
-- has another generation. What a person skipped is told nobody, and neither is a notice that could not be delivered (its event's
-- type begins with `redrive.`): it would make another one.
CREATE FUNCTION redrive.note_added_deaths() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  v_orgs   uuid[];
  v_tasks  uuid[];
BEGIN
  SELECT array_agg(org_id), array_agg(task_id) INTO v_orgs, v_tasks
    FROM added WHERE state = 'open' AND reason <> 'skipped' AND NOT starts_with(event_type, 'redrive.');
  IF v_orgs IS NOT NULL THEN
    PERFORM redrive.note_deaths(v_orgs, v_tasks);
  END IF;
  RETURN NULL;
END $$;
CREATE FUNCTION redrive.note_repeated_deaths() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  v_orgs   uuid[];
  v_tasks  uuid[];
BEGIN
  IF EXISTS (SELECT FROM added WHERE state = 'open' AND reason <> 'skipped' AND NOT starts_with(event_type, 'redrive.')) THEN
    SELECT array_agg(org_id), array_agg(task_id) INTO v_orgs, v_tasks
      FROM (SELECT org_id, task_id, generation FROM added
             WHERE state = 'open' AND reason <> 'skipped' AND NOT starts_with(event_type, 'redrive.')
            EXCEPT SELECT org_id, task_id, generation FROM removed) again;
    IF v_orgs IS NOT NULL THEN
      PERFORM redrive.note_deaths(v_orgs, v_tasks);
    END IF;
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER note_added AFTER INSERT ON redrive.dead_letter REFERENCING NEW TABLE AS added
  FOR EACH STATEMENT EXECUTE FUNCTION redrive.note_added_deaths();
CREATE TRIGGER note_repeated AFTER UPDATE ON redrive.dead_letter REFERENCING OLD TABLE AS removed NEW TABLE AS added
  FOR EACH STATEMENT EXECUTE FUNCTION redrive.note_repeated_deaths();
