-- totals: the installation's totals, with what is not rolled yet, as of one moment. A handful of rows, and the last seconds of the tally.
SELECT d.name, d.slot, sum(d.n)::bigint AS n
  FROM (SELECT o.name, o.slot, o.n FROM redrive.total o
        UNION ALL
        SELECT v.name, v.slot, v.n
          FROM redrive.tally t CROSS JOIN LATERAL redrive.totals_of(t) v
         WHERE t.seq > (SELECT coalesce(max(m.done_to), 0) FROM redrive.roll_mark m WHERE m.singleton)) d
 GROUP BY d.name, d.slot;
