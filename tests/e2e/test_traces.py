"""Traces: what is handed in, its tries, redrives and steps are one trace, in whichever process they happen."""

from pathlib import Path

from support.collector import Collected, open_collector
from support.processes import ADMIN_KEY, serve, worker
from support.receiver import open_receiver
from support.remote import Remote

CLIENT, SERVER, CONSUMER = 3, 2, 5
ERROR = 2
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
CALLER = "00f067aa0ba902b7"
SAMPLED = f"00-{TRACE}-{CALLER}-01"

APP = """
from opentelemetry import trace
from redrive import Redrive

app = Redrive()


@app.handler("look")
def look(task):
    with trace.get_tracer("mine").start_as_current_span("my own"):
        return task.traceparent
"""


async def test_a_retry_a_redrive_and_the_steps_of_a_run_are_in_the_trace_of_the_request(
    database_url: str, data_dir: Path
) -> None:
    data_dir.joinpath("traced_app.py").write_text(APP)
    async with open_collector() as collector, open_receiver() as receiver:
        env = {"REDRIVE_OTEL_ENDPOINT": collector.url, "REDRIVE_TRACE_SHARE": "0"}
        async with (
            serve("--no-worker", "--database-url", database_url, env=env) as served,
            worker(database_url, "--app", "traced_app:app", cwd=data_dir, env=env) as first,
        ):
            api = Remote(served.host, served.port, ADMIN_KEY)
            await api.policy("quick", kind="list", delays_s=[0.01], max_retries=1)
            endpoint = await api.endpoint(f"{receiver.url}?token=secret-7", policy="quick")
            receiver.script(503, 500)
            event_id = await api.event(endpoint["id"], traceparent=SAMPLED, tracestate="vendor=1")
            await api.failed(event_id)
            assert await first.terminated() < 10  # what waited was sent

            async with worker(database_url, "--app", "traced_app:app", cwd=data_dir, env=env) as second:
                letter = await api.letter(endpoint["id"])
                await api.post(f"/v1/dead-letters/{letter['id']}/retry", {"now": True})
                await api.delivered(event_id)
                untraced = await api.event(endpoint["id"], traceparent=f"00-{'7' * 32}-{CALLER}-00")
                undecided = await api.event(endpoint["id"])
                await api.delivered(untraced)
                await api.delivered(undecided)
                step = {"name": "look", "kind": "handler", "handler": "look"}
                call = {"name": "call", "kind": "http", "url": receiver.url, "method": "PUT"}
                await api.workflow("flow", call, step)
                run_id = await api.run("flow", {}, traceparent=SAMPLED)
                await second.said("run_transition", run_id=run_id, new_status="SUCCESS")
                spans = await collector.wait_for(8)
            api.close()

    accepts = [span for span in spans if span.name == "accept"]
    tries = [span for span in spans if span.attributes.get("redrive.event_id") == event_id and span.name == "deliver"]
    steps = [span for span in spans if span.attributes.get("redrive.run_id") == run_id and span.name == "deliver"]
    (own,) = [span for span in spans if span.name == "my own"]
    assert len(spans) == 8
    assert {span.trace_id for span in spans} == {TRACE}
    assert [(span.kind, span.parent_id) for span in accepts] == [(SERVER, CALLER)] * 2

    of_event, of_run = accepts
    assert {span.parent_id for span in tries} == {of_event.span_id}
    assert [(span.kind, span.status) for span in tries] == [(CLIENT, ERROR), (CLIENT, ERROR), (CLIENT, 0)]
    assert [_facts(span) for span in tries] == [(503, 1, 0), (500, 2, 0), (200, 2, 1)]
    assert [span.links for span in tries] == [[], [tries[0].span_id], []]
    assert tries[0].exceptions == [
        {"exception.type": "server_error", "exception.message": "HTTP 503 Service Unavailable"}
    ]
    assert tries[0].attributes["server.address"] == "127.0.0.1"
    assert tries[0].attributes["http.request.method"] == "POST"
    assert {span.resource["redrive.process"] for span in spans} == {"redrive-api", "redrive-worker"}
    assert "secret-7" not in collector.text()

    sent = [request.headers["traceparent"] for request in receiver.requests if "traceparent" in request.headers]
    assert sent[:3] == [f"00-{TRACE}-{span.span_id}-01" for span in tries]
    assert sent[3] == f"00-{'7' * 32}-{CALLER}-00"  # as it came
    assert receiver.requests[0].headers["tracestate"] == "vendor=1"
    assert "traceparent" not in receiver.requests[4].headers
    assert len({request.headers["x-correlation-id"] for request in receiver.requests}) == 4

    assert [span.parent_id for span in steps] == [of_run.span_id] * 2
    assert [span.kind for span in steps] == [CLIENT, CONSUMER]
    assert steps[0].attributes["http.request.method"] == "PUT"
    assert own.parent_id == steps[1].span_id


async def test_c21_status_queries_are_traced_by_both_ways(database_url: str) -> None:
    async with open_collector() as collector:
        env = {"REDRIVE_OTEL_ENDPOINT": collector.url, "REDRIVE_TRACE_SHARE": "0"}
        async with serve("--no-worker", "--database-url", database_url, env=env) as served:
            api = Remote(served.host, served.port, ADMIN_KEY)
            event_id = (await api.post("/v1/events", {"event_type": "nobody.asked", "payload": 1}))["event_id"]
            path = f"/v1/events/{event_id}/status"
            for case in (event_id, event_id.upper()):  # the second goes the long way, through the route
                answered = await api.http.get(f"/v1/events/{case}/status", traceparent=SAMPLED)
                assert answered.json["status"] == "received"
            await api.http.get(path, traceparent=f"00-{'7' * 32}-{CALLER}-00")
            await api.get(path)
            spans = await collector.wait_for(2, name="status")
            api.close()
    assert [(span.trace_id, span.parent_id, span.kind) for span in spans] == [(TRACE, CALLER, SERVER)] * 2
    assert {span.attributes["redrive.event_id"] for span in spans} == {event_id}
    assert {span.attributes["redrive.status"] for span in spans} == {"received"}


def _facts(span: Collected) -> tuple[int, int, int]:
    told = span.attributes
    return told["http.response.status_code"], told["redrive.attempt"], told["redrive.generation"]
