-- get_pauses: the installation first, then the org. $1 org (NULL: the installation alone).
SELECT 'installation' AS scope, id, paused_at, paused_by, paused_because FROM redrive.installation WHERE singleton
UNION ALL
SELECT 'org', org_id, paused_at, paused_by, paused_because FROM redrive.org WHERE org_id = $1;
