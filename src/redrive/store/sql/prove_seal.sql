-- prove_seal: the first process leaves its proof, the others are measured against it.
UPDATE redrive.installation SET seal_check = coalesce(seal_check, $1) RETURNING seal_check;
