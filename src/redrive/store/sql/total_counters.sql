-- total_counters: counters of all orgs together. $1 names.
SELECT c.name, sum(c.n)::bigint AS n FROM redrive.counter c WHERE c.name = ANY ($1::text[]) GROUP BY c.name;
