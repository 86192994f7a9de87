-- count_held: the tasks held for an endpoint, as far as $3 counts. $1 org, $2 endpoint, $4 now.
SELECT redrive.held_by_endpoint($1::uuid, $2::uuid, $4::timestamptz, $3::bigint)::int AS n;
