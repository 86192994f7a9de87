-- forgive_attempts: after a login that succeeded. The e-mail's ($1) are forgotten, the address ($2) gets back its one.
WITH forgotten AS (DELETE FROM redrive.login_attempt WHERE subject = $1)
UPDATE redrive.login_attempt SET failures = greatest(failures - 1, 0) WHERE subject = $2;
