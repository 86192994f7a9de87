-- end_session
DELETE FROM redrive.session WHERE token_hash = $1;
