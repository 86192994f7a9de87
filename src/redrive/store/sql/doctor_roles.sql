-- doctor_roles: what the roles of tenants and engine may do beyond what was granted to them.
SELECT r.rolname::text AS name, r.rolsuper, r.rolbypassrls, r.rolcanlogin, r.rolcreaterole,
       (SELECT count(*)::int FROM pg_class c WHERE c.relnamespace = 'redrive'::regnamespace AND c.relowner = r.oid) AS owns,
       ARRAY (SELECT b.rolname::text FROM pg_auth_members m JOIN pg_roles b ON b.oid = m.roleid WHERE m.member = r.oid ORDER BY 1) AS member_of
  FROM pg_roles r WHERE r.rolname IN ('redrive_app', 'redrive_engine', 'redrive_janitor', 'redrive_producer') ORDER BY 1;
