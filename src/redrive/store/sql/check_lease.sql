-- check_lease: a leased task has a holder, a beginning, a fence and an end within the hour.
SELECT t.org_id, t.id,
       CASE WHEN t.worker_id IS NULL OR t.leased_at IS NULL THEN 'nobody holds the lease, or since never'
            WHEN t.fence < 1 THEN 'the lease has no fence'
            ELSE format('the lease of %s ends at %s', t.leased_at, t.lease_ends_at) END AS detail
  FROM redrive.task t
 WHERE t.state = 'leased'
   AND (t.worker_id IS NULL OR t.leased_at IS NULL OR t.fence < 1 OR t.lease_ends_at IS NULL
     OR t.lease_ends_at > t.leased_at + interval '1 hour')
 LIMIT 11;
