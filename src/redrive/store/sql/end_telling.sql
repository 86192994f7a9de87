-- end_telling: another server may tell the numbers of the installation at once. $1 server.
UPDATE redrive.teller t SET server = NULL, name = NULL, until = NULL WHERE t.singleton AND t.server = $1::uuid;
