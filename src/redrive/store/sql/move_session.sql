-- move_session: to another org.
UPDATE redrive.session SET in_org = $2 WHERE token_hash = $1 RETURNING id;
