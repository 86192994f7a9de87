-- The input of a step that died, redacted before it is stored. NULL: of letters of other kinds, and of those before this migration.
ALTER TABLE redrive.dead_letter ADD COLUMN payload text;  -- JSON
