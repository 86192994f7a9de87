-- doctor_catalogue: everything that the migrations make, as (kind, on, name, definition): what is stored as catalogue.tsv, and what
-- a database is compared with it by. Where there is a statement that makes the thing, the definition is that statement. Asked with an
-- empty search_path, so that names are written in full. Not asked for is what versions of PostgreSQL spell in ways of their own: the
-- text of views, defaults, constraints that say NOT NULL (18 lists them).
WITH ours AS (
  SELECT c.oid, c.relname::text AS name, c.relkind, c.relrowsecurity, c.relforcerowsecurity, c.reloptions, c.relacl
    FROM pg_class c WHERE c.relnamespace = 'redrive'::regnamespace AND c.relkind IN ('r', 'p', 'v')),
roles AS (
  SELECT r.oid, r.rolname::text AS name FROM pg_roles r
   WHERE r.rolname IN ('redrive_app', 'redrive_engine', 'redrive_janitor', 'redrive_producer')
  UNION ALL SELECT 0, 'PUBLIC')
SELECT 'table' AS kind, o.name AS on_what, o.name, ''::text AS definition FROM ours o WHERE o.relkind <> 'v'
UNION ALL
SELECT 'security', o.name, o.name, concat_ws(' ', CASE WHEN o.relrowsecurity THEN 'enabled' END, CASE WHEN o.relforcerowsecurity THEN 'forced' END)
  FROM ours o WHERE o.relkind <> 'v'
UNION ALL
SELECT 'view', o.name, o.name, coalesce((SELECT string_agg(opt, ' ' ORDER BY opt) FROM unnest(o.reloptions) opt), '') FROM ours o WHERE o.relkind = 'v'
UNION ALL
SELECT 'column', o.name, o.name || '.' || a.attname,
       format_type(a.atttypid, a.atttypmod) || CASE WHEN a.attnotnull THEN ' NOT NULL' ELSE '' END || CASE WHEN a.attgenerated <> '' THEN ' GENERATED' ELSE '' END
  FROM ours o JOIN pg_attribute a ON a.attrelid = o.oid AND a.attnum > 0 AND NOT a.attisdropped
UNION ALL
SELECT 'index', o.name, i.relname::text, pg_get_indexdef(x.indexrelid)
  FROM ours o JOIN pg_index x ON x.indrelid = o.oid JOIN pg_class i ON i.oid = x.indexrelid
 WHERE NOT EXISTS (SELECT FROM pg_constraint k WHERE k.conindid = x.indexrelid AND k.conrelid = o.oid)
UNION ALL
SELECT 'constraint', o.name, o.name || '.' || k.conname, format('ALTER TABLE redrive.%I ADD CONSTRAINT %I %s', o.name, k.conname, pg_get_constraintdef(k.oid))
  FROM ours o JOIN pg_constraint k ON k.conrelid = o.oid AND k.contype IN ('p', 'u', 'f', 'c', 'x')
UNION ALL
SELECT 'trigger', o.name, o.name || '.' || t.tgname, pg_get_triggerdef(t.oid) || CASE t.tgenabled WHEN 'O' THEN '' ELSE ' -- switched off' END
  FROM ours o JOIN pg_trigger t ON t.tgrelid = o.oid AND NOT t.tgisinternal
UNION ALL
SELECT 'function', p.proname || '(' || pg_get_function_identity_arguments(p.oid) || ')', p.proname || '(' || pg_get_function_identity_arguments(p.oid) || ')',
       md5(concat_ws('|', p.prosrc, p.provolatile, p.prosecdef, p.proconfig::text, pg_get_function_result(p.oid), p.prokind))
  FROM pg_proc p WHERE p.pronamespace = 'redrive'::regnamespace
UNION ALL
SELECT 'policy', o.name, o.name || '.' || p.polname,
       format('CREATE POLICY %I ON redrive.%I AS %s FOR %s TO %s', p.polname, o.name, CASE WHEN p.polpermissive THEN 'PERMISSIVE' ELSE 'RESTRICTIVE' END,
              CASE p.polcmd WHEN '*' THEN 'ALL' WHEN 'r' THEN 'SELECT' WHEN 'a' THEN 'INSERT' WHEN 'w' THEN 'UPDATE' ELSE 'DELETE' END,
              (SELECT string_agg(coalesce(r.rolname::text, 'PUBLIC'), ', ' ORDER BY r.rolname) FROM unnest(p.polroles) u(oid) LEFT JOIN pg_roles r ON r.oid = u.oid))
         || coalesce(' USING (' || pg_get_expr(p.polqual, p.polrelid) || ')', '') || coalesce(' WITH CHECK (' || pg_get_expr(p.polwithcheck, p.polrelid) || ')', '')
  FROM ours o JOIN pg_policy p ON p.polrelid = o.oid
UNION ALL
SELECT 'grant', o.name, r.name || ' on ' || o.name,
       format('GRANT %s ON redrive.%I TO %s', string_agg(x.privilege_type, ', ' ORDER BY x.privilege_type), o.name, r.name)
  FROM ours o CROSS JOIN LATERAL aclexplode(o.relacl) x JOIN roles r ON r.oid = x.grantee GROUP BY o.name, r.name
UNION ALL
SELECT 'grant', o.name, r.name || ' on ' || o.name || ' (columns)',
       format('GRANT %s ON redrive.%I TO %s', string_agg(format('%s (%I)', x.privilege_type, a.attname), ', ' ORDER BY x.privilege_type, a.attname), o.name, r.name)
  FROM ours o JOIN pg_attribute a ON a.attrelid = o.oid AND NOT a.attisdropped CROSS JOIN LATERAL aclexplode(a.attacl) x
  JOIN roles r ON r.oid = x.grantee GROUP BY o.name, r.name
UNION ALL
SELECT 'grant', p.proname || '(' || pg_get_function_identity_arguments(p.oid) || ')', r.name || ' on ' || p.proname || '(' || pg_get_function_identity_arguments(p.oid) || ')',
       format('GRANT EXECUTE ON ROUTINE redrive.%s(%s) TO %s', p.proname, pg_get_function_identity_arguments(p.oid), r.name)
  FROM pg_proc p CROSS JOIN LATERAL aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) x JOIN roles r ON r.oid = x.grantee
 WHERE p.pronamespace = 'redrive'::regnamespace
ORDER BY 1, 3;
