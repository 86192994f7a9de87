-- delete_endpoint: the row stays for the tasks that name it.
UPDATE redrive.endpoint SET deleted_at = clock_timestamp(), updated_at = clock_timestamp()
 WHERE org_id = $1 AND id = $2 AND deleted_at IS NULL;
