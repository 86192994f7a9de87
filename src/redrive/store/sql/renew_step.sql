-- renew_step: what a step that is replayed under another key sends, besides its body. $1 org, $2 run, $3 index, $4 URL, $5 headers (JSON).
UPDATE redrive.step SET url = $4, headers = $5 WHERE org_id = $1 AND run_id = $2 AND index = $3;
