-- doctor_orgs: whether an org of this name exists, and the proof of the key that secrets are sealed with. $1 name.
SELECT EXISTS (SELECT FROM redrive.org o WHERE o.name = $1) AS is_there, i.seal_check FROM redrive.installation i;
