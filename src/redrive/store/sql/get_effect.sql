-- get_effect: what came of an effect. $1 org, $2 key.
SELECT result FROM redrive.effect WHERE org_id = $1 AND key = $2;
