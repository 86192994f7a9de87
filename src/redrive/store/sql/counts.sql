-- counts: all of an org's counters.
SELECT name, sum(n)::bigint AS n FROM redrive.counter WHERE org_id = $1 GROUP BY name ORDER BY name;
