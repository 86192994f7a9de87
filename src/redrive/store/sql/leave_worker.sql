-- leave_worker: it has drained. $1 worker.
DELETE FROM redrive.worker WHERE id = $1;
