-- set_fallback: the installation's default policy, from the settings; NULL: integration. $1 name.
UPDATE redrive.installation SET default_policy = $1 WHERE singleton AND default_policy IS DISTINCT FROM $1;
