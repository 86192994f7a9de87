-- enqueue_steps: see the function. The runs are locked. $1 … $15 an array each, $16 now.
SELECT redrive.enqueue_steps($1::uuid[], $2::uuid[], $3::int[], $4::text[], $5::text[], $6::text[], $7::uuid[], $8::text[], $9::uuid[],
                             $10::text[], $11::bytea[], $12::text[], $13::text[], $14::text[], $15::float8[], $16::timestamptz) AS n;
