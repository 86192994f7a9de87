-- top_counters: of an org, or of all together. $1 org (NULL: all).
SELECT c.name, sum(c.n)::bigint AS n FROM redrive.counter c
 WHERE ($1::uuid IS NULL OR c.org_id = $1)
   AND c.name IN ('task.waiting', 'task.leased', 'task.held', 'retrying', 'dead.open', 'dead.replaying', 'event.inbox', 'run.RUNNING', 'run.DLQ_PENDING')
 GROUP BY c.name;
