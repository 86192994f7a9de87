-- lock_for_events: waits where an event that came now would wait for somebody's lock.
LOCK TABLE redrive.event, redrive.task, redrive.counter, redrive.pulse IN ROW EXCLUSIVE MODE;
