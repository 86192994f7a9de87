-- end_sessions_of: all of a user ($1) but this one ($2), in which a password was set: it must be known from now on, by
-- whichever way it began.
WITH kept AS (UPDATE redrive.session SET by_link = false WHERE user_id = $1 AND token_hash = $2)
DELETE FROM redrive.session WHERE user_id = $1 AND token_hash <> $2;
