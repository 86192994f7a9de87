-- Whoever came by a link has proved who they are without a password: they may set a new one where they forgot theirs.

ALTER TABLE redrive.session ADD COLUMN by_link boolean NOT NULL DEFAULT false;
