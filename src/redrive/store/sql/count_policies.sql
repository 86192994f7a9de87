-- count_policies: those in force. $1 org.
SELECT count(*) AS n FROM redrive.policy WHERE org_id = $1 AND retired_at IS NULL;
