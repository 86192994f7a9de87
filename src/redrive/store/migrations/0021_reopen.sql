-- A dead letter that was resolved or ignored may be opened again: whoever did so by mistake takes it back.

DROP TRIGGER dead_letter_transition ON redrive.dead_letter;
CREATE TRIGGER dead_letter_transition BEFORE UPDATE ON redrive.dead_letter FOR EACH ROW
  WHEN (OLD.state <> NEW.state AND (OLD.state || '>' || NEW.state) NOT IN (
    'open>replaying', 'open>resolved', 'open>ignored', 'open>deleted', 'replaying>resolved', 'replaying>open',
    'resolved>replaying', 'resolved>deleted', 'resolved>open', 'ignored>replaying', 'ignored>resolved',
    'ignored>deleted', 'ignored>open'))
  EXECUTE FUNCTION redrive.refuse_transition();

ALTER TABLE redrive.operation DROP CONSTRAINT operation_action_check;
ALTER TABLE redrive.operation ADD CONSTRAINT operation_action_check
  CHECK (action IN ('retry', 'skip', 'resolve', 'ignore', 'delete', 'reopen'));
