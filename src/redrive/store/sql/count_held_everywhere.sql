-- count_held_everywhere: held tasks of all orgs that the session sees.
SELECT coalesce(sum(n), 0)::bigint AS n FROM redrive.counter WHERE name = 'task.held';
