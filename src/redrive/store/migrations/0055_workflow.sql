-- A replay's override counts for every step that the replay runs, also for those that the run has not come to.
ALTER TABLE redrive.run ADD COLUMN overrides text;  -- JSON: by a step's index, the id of the policy that it is replayed under
SET LOCAL ROLE redrive_engine;
UPDATE redrive.run r SET overrides = o.overrides
  FROM (SELECT s.org_id, s.run_id, jsonb_object_agg(s.index, t.policy_id)::text AS overrides
          FROM redrive.step s JOIN redrive.task t ON t.org_id = s.org_id AND t.id = s.task_id
         WHERE s.retry_policy_override IS NOT NULL GROUP BY s.org_id, s.run_id) o
 WHERE r.org_id = o.org_id AND r.id = o.run_id;
RESET ROLE;
ALTER TABLE redrive.step DROP COLUMN retry_policy_override;
