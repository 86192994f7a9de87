-- Wake-ups in the order in which they were left: a look begins behind those that were done with (store.wake_floor). No key of a
-- tenant's table begins with anything but its org, so this is none; whoever replicates the table knows a row by all of it.
ALTER TABLE redrive.lane_wake DROP CONSTRAINT lane_wake_pkey;
ALTER TABLE redrive.lane_wake REPLICA IDENTITY FULL;
CREATE INDEX lane_wake_number ON redrive.lane_wake (number);
