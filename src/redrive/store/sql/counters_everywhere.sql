-- counters_everywhere: the counters of all orgs together, each added up over orgs and shards. Reads the whole table, which has some dozen
-- rows for each org: whoever asks does so at a pace (store/installation.py).
SELECT c.name, sum(c.n)::bigint AS n FROM redrive.counter c
 WHERE c.name = 'retrying' OR split_part(c.name, '.', 1) IN ('event', 'task', 'further', 'dead', 'run', 'workflow')
 GROUP BY c.name;
