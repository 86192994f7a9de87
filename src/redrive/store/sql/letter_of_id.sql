-- letter_of_id: what a text is that may be the id of an event or a correlation id of dead letters. $1 org, $2 state, $3 text, $4 the text
-- as a uuid, or NULL.
SELECT EXISTS (SELECT FROM redrive.dead_letter d WHERE d.org_id = $1 AND d.state = (SELECT $2::text) AND d.event_id = $4::uuid) AS is_event,
       EXISTS (SELECT FROM redrive.dead_letter d
                WHERE d.org_id = $1 AND d.state = (SELECT $2::text) AND d.correlation_id = $3::text) AS is_correlation;
