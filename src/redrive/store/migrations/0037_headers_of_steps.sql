-- The headers of a step that is run again because an earlier one was: rendered anew, as its URL is. NULL: those that its event has.
ALTER TABLE redrive.step ADD COLUMN headers text;
