-- Wake-ups in the order in which they were left: a look begins behind those that were done with (store.wake_floor).
ALTER TABLE redrive.lane_wake DROP CONSTRAINT lane_wake_pkey;
ALTER TABLE redrive.lane_wake ADD PRIMARY KEY (number);
