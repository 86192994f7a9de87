-- A dead letter that is redriven in an early stage of an operation has one try, and returns to the dead letters where that fails.
ALTER TABLE redrive.task ADD COLUMN trial boolean NOT NULL DEFAULT false;
