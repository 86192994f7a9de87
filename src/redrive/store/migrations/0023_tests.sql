-- A test delivery is tried once. Where it fails, whoever sent it is told; it is nobody's work to deal with.

ALTER TABLE redrive.task ADD COLUMN is_test boolean;  -- NULL: no
