-- accept: see the function of that name in the migrations. $15 is now (NULL: the database's clock), $16 the order in
-- which they came.
SELECT org_id, event_id, verdict, status
  FROM redrive.accept($1::uuid[], $2::uuid[], $3::text[], $4::bytea[], $5::timestamptz[], $6::uuid[], $7::text[],
                      $8::text[], $9::text[], $10::text[], $11::text[], $15::timestamptz, $12::text[], $13::text[],
                      $16::integer[], $14::text[]);
