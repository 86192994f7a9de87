-- disown_endpoints: a worker that has nothing under way any more lets go of what it had to itself. $1 worker.
UPDATE redrive.endpoint_state SET worker_id = NULL, owned_until = NULL WHERE worker_id = $1::uuid;
