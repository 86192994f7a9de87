-- Ids without a system call each. Where the server is built without OpenSSL, uuidv7() opens /dev/urandom for every id it
-- makes: a seventh of what storing an event and its task costs.

-- A UUID of version 7: milliseconds, their fraction in 12 bits, so that ids stay in the order of time within one, and 62
-- random bits. random() is seeded anew for each connection; ids are no secrets. One expression, which the planner inlines.
CREATE OR REPLACE FUNCTION redrive.uuid7() RETURNS uuid LANGUAGE sql VOLATILE PARALLEL SAFE AS $$
  SELECT (overlay(lpad(to_hex((date_part('epoch', clock_timestamp()) * 4096000)::bigint), 15, '0') PLACING '7' FROM 13 FOR 0)
          || to_hex((-9223372036854775807 - 1) | (random() * 9007199254740991)::bigint | ((random() * 511)::bigint << 53)))::uuid
$$;
