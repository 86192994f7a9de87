-- count_workflows: those in force. $1 org.
SELECT count(*) AS n FROM redrive.workflow w WHERE w.org_id = $1 AND w.retired_at IS NULL;
