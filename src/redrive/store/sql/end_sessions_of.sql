-- end_sessions_of: all of a user but this one ($2).
DELETE FROM redrive.session WHERE user_id = $1 AND token_hash <> $2;
