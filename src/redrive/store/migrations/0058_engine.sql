-- What a person asked for now is found by itself, wherever a breaker or a limit keeps the rest of its endpoint back.
CREATE INDEX task_expedited ON redrive.task (queue, due_at) WHERE expedited AND live;
