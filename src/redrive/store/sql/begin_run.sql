-- begin_run: see the function.
SELECT redrive.begin_run($1::uuid, $2::uuid, $3::uuid, $4::bytea, $5::text, $6::text, $7::text, $8::text, $9::text, $10::text, $11::uuid,
                         $12::text, $13::uuid, $14::text, $15::bytea, $16::text, $17::text, $18::text, $19::float8, $20::timestamptz)
       AS verdict;
