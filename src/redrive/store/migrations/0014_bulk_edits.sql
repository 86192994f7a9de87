-- A bulk retry may change every payload on the way: a merge patch (RFC 7396), as text, so that numbers keep their digits.
ALTER TABLE redrive.operation ADD COLUMN patch text;

-- Which items failed, and why.
CREATE INDEX operation_item_failed ON redrive.operation_item (org_id, operation_id, n) WHERE state = 'failed';
