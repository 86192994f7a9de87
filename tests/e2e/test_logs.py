"""No payload, key or secret in any log, error, snapshot, number or trace, at any level, whatever goes wrong (C-7)."""

import json
import re
from base64 import b64encode
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from redrive import Redrive
from redrive.doctor.diagnose import diagnose
from redrive.settings import Settings, load_settings
from support.collector import open_collector
from support.http import Answer as HttpAnswer
from support.http import HttpClient
from support.processes import Program, Served, run, serve, worker
from support.receiver import Answer, Receiver, open_receiver
from support.remote import Remote

APP = """
from redrive import Redrive

app = Redrive("{url}")


@app.handler("edi.orders", policy="quick")
def send(task):
    raise RuntimeError("POST https://erp.example/?api_key=canary-handler failed, password=canary-stack")
"""
SECRET_KEY = "canary-secret-key-of-the-installation"
ADMIN_KEY = "canary-admin-key"
PASSWORD = "canary password of Ada"
SENDER_SECRET = "whsec_" + b64encode(b"canary-sender-secret-of-a-relay!").decode()


@dataclass
class Shown:
    """All that anybody could read somewhere, by where."""

    texts: dict[str, str] = field(default_factory=dict)
    hidden: dict[str, str] = field(default_factory=dict)  # secrets that Redrive made itself, by where they belong

    def add(self, where: str, text: object) -> None:
        self.texts[where] = self.texts.get(where, "") + (
            text if isinstance(text, str) else json.dumps(text, default=str)
        )

    def answer(self, where: str, answer: HttpAnswer, status: int) -> None:
        assert answer.status == status, (where, answer.status)
        self.add(where, f"{sorted(answer.headers.items())} {answer.body.decode()}")

    def leaks(self) -> list[str]:
        found = []
        for where, text in self.texts.items():
            found += [f"{where}: …{text[max(0, m.start() - 60) : m.end() + 40]}…" for m in re.finditer("canary", text)]
            found += [f"{where}: the {name}" for name, value in self.hidden.items() if value in text]
        return found


def _secret_settings(url: str, collector: str) -> dict[str, str]:
    """A canary in every setting that is secret; that of the databases is the password that they have."""
    planted = {
        "database_url": url,
        "database_direct_url": url,
        "admin_key": ADMIN_KEY,
        "secret_key": SECRET_KEY,
        "rabbitmq_url": "amqp://guest:canary-rabbitmq@127.0.0.1:9/",
        "smtp_url": "smtp://ada%40example.com:canary-smtp@127.0.0.1:9",
        "otel_endpoint": collector.replace("http://", "http://ada:canary-otel@"),
    }
    fields = Settings.model_fields.items()
    secret = {name for name, f in fields if isinstance(f.json_schema_extra, dict) and f.json_schema_extra["secret"]}
    assert planted.keys() == secret, "a new secret setting: plant a canary in it"
    assert all("canary" in value for value in planted.values() if value != url)
    return planted


async def test_a_canary_in_every_secret_place_is_nowhere_to_be_seen(database_url: str, data_dir: Path) -> None:
    shown = Shown()
    async with open_collector() as collector, open_receiver() as receiver:
        planted = _secret_settings(database_url, collector.url)
        shown.hidden["database's password"] = str(urlsplit(database_url).password)
        env = {f"REDRIVE_{name.upper()}": value for name, value in planted.items()}
        env |= {"REDRIVE_LOG_LEVEL": "debug", "REDRIVE_TRACE_SHARE": "1", "REDRIVE_RABBITMQ_COLLECT": "some-dlq"}
        data_dir.joinpath("flawed_app.py").write_text(APP.format(url=planted["database_url"]))
        async with (
            serve("--no-worker", env=env, anew=True) as served,
            worker(planted["database_url"], "--app", "flawed_app:app", cwd=data_dir, env=env) as working,
        ):
            api = Remote(served.host, served.port, ADMIN_KEY)
            await _deliveries(api, working, receiver, planted["database_url"], shown)
            await _people(api, served, shown)
            await _refusals(api, shown)
            await _pages(api, shown)
            await working.said("broker_disconnected")
            shown.add("doctor", repr(await diagnose(load_settings(**planted), planted["database_url"])))
            for process in (served.program, working):
                shown.add("argv", Path(f"/proc/{process.pid}/cmdline").read_text())
            shown.add("argv of the api", Path(f"/proc/{await served.child_pid('api')}/cmdline").read_text())
            await collector.wait_for(3, name="deliver")
            api.close()
            await working.terminated()
            await served.program.terminated()
        # Not among the arguments of the worker that the test itself started.
        shown.texts["argv"] = shown.texts["argv"].replace(planted["database_url"], "")
        shown.add("check", (await run("check", **env))[1])
        shown.add("log of the worker", working.log)
        shown.add("log of the server", served.program.log)
        shown.add("output of the server", served.program.out[1:])  # the first is for whoever started it: a link
        shown.add("traces", [str(span) for span in collector.spans()])
    names = {line["event"] for line in working.log if "event" in line}
    assert names >= {"worker_started", "delivery_failure", "retry_attempted", "event_failed", "status_transition"}
    assert {"@timestamp", "service", "org_id", "correlation_id"} <= working.lines("event_failed")[0].keys()
    assert shown.texts.keys() >= {
        "metrics",
        "audit",
        "notices",
        "doctor",
        "snapshot",
        "traces",
        "check",
        "problem: login",
    }
    assert "\n".join(shown.leaks()) == ""


async def _deliveries(api: Remote, working: Program, receiver: Receiver, url: str, shown: Shown) -> None:
    """Everything that can be secret about a delivery, and every way in which one can fail."""
    await api.policy("quick", kind="list", delays_s=[0.01], max_retries=1)
    receiver.usual = lambda _: Answer(503, b'{"token": "canary-answer"}', {"set-cookie": "canary-cookie"})
    endpoint = await api.endpoint(
        f"{receiver.url}?token=canary-url", headers={"x-erp-key": "canary-header"}, policy="quick"
    )
    shown.hidden["endpoint's secret"] = endpoint["secret"]
    dead = await api.event(endpoint["id"], {"card": "canary-payload"}, **{"x-canary": "canary-sent"})
    await working.said("event_failed", event_id=dead)
    app = Redrive(url)
    handled = await app.enqueue("edi.orders", {"card": "canary-payload"}, policy="quick")
    await app.close()
    await working.said("event_failed", event_id=str(handled))
    step = {"name": "call", "kind": "http", "url": f"{receiver.url}?key=canary-step", "method": "POST"}
    headers = {"x-api-key": "canary-step-header", "authorization": "Bearer {{ input.token }}"}
    await api.workflow("flow", step | {"headers": headers, "body": "{{ input }}", "policy": "quick"})
    run_id = await api.run("flow", {"token": "canary-input", "password": "canary-input"})
    failed = await working.said("event_failed", run_id=run_id)
    shown.add("snapshot", await api.get(f"/v1/dead-letters/{failed['task']}"))
    shown.add("snapshot", await api.get(f"/v1/logs/{failed['task']}"))
    shown.add("run", await api.get(f"/v1/runs/{run_id}"))
    shown.add("workflow", await api.get("/v1/workflows/flow"))
    letter = await api.letter(endpoint["id"])
    await api.post(f"/v1/dead-letters/{letter['id']}/retry", {"now": True})
    relay = await api.relay(verify={"scheme": "standard", "secret": SENDER_SECRET})
    shown.hidden["relay's token"] = str(relay["hook_url"]).rpartition("/")[2]
    shown.hidden["sender's secret"] = SENDER_SECRET
    refused = await api.try_webhook(relay, b'{"canary": "canary-webhook"}', webhook_signature="v1,canary-signature")
    shown.answer("problem: webhook", refused, 401)


async def _people(api: Remote, served: Served, shown: Shown) -> None:
    key = await api.post("/v1/keys", {"name": "a key", "role": "ADMIN"})
    shown.hidden["API key"] = key["key"]
    ada = {"email": "ada@example.com", "name": "Ada", "role": "ORG_ADMIN", "password": PASSWORD}
    await api.post("/v1/users", ada)
    anybody = HttpClient(served.host, served.port)
    given = {"email": ada["email"], "password": PASSWORD}
    entered = await anybody.post("/v1/session", given)
    assert entered.status == 200, entered.body
    cookie = entered.headers["set-cookie"].partition(";")[0].partition("=")[2]
    shown.hidden["session"] = cookie
    shown.answer("problem: login", await anybody.post("/v1/session", given | {"password": "canary wrong one"}), 401)
    shown.answer("problem: link", await anybody.get("/login?token=canary-link"), 401)
    shown.answer("problem: key", await anybody.get("/v1/events", X_API_Key="canary-no-key"), 401)
    shown.answer("problem: cookie", await anybody.get("/v1/events", Cookie="redrive_session=canary-session"), 401)
    link = urlsplit(json.loads(served.program.out[0])["sign_in_url"])
    shown.hidden["token of the sign-in link"] = link.query.partition("=")[2]
    shown.answer("sign-in link", await anybody.get(f"{link.path}?{link.query}"), 303)
    anybody.close()


async def _refusals(api: Remote, shown: Shown) -> None:
    """What cannot be used is not repeated to whoever sent it."""
    http: Any = api.http
    post = http.post
    bad = {"event_type": "a\x00", "payload": {"card": "canary-refused"}}
    shown.answer("problem: event", await post("/v1/events", bad), 422)
    shown.answer("problem: body", await http.request("POST", "/v1/events", body=b'{"event_type": "canary-broken'), 422)
    unusable = {"name": "x", "url": "http://ada:canary-userinfo@127.0.0.1:99999/?q=canary-query", "event_types": ["a"]}
    shown.answer("problem: endpoint", await post("/v1/endpoints", unusable), 422)
    headers = {"name": "x", "url": "http://127.0.0.1/", "event_types": ["a"], "headers": {"x-a": "canary\nline"}}
    shown.answer("problem: headers", await post("/v1/endpoints", headers), 422)
    relay = {"name": "y", "kind": "relay", "verify": {"scheme": "standard", "secret": "canary short"}}
    shown.answer("problem: verify", await post("/v1/endpoints", relay), 422)
    short = {"email": "bob@example.com", "name": "Bob", "role": "VIEWER", "password": "canary"}
    shown.answer("problem: password", await post("/v1/users", short), 422)


async def _pages(api: Remote, shown: Shown) -> None:
    for where, path in (
        ("audit", "/v1/audit?limit=100"),
        ("notices", "/v1/notices"),
        ("metrics", "/metrics"),
        ("letters", "/v1/dead-letters"),
        ("keys", "/v1/keys"),
        ("users", "/v1/users"),
        ("health", "/health"),
    ):
        answer = await api.http.get(path)
        shown.answer(where, answer, 200) if where != "health" else shown.add(where, answer.body.decode())
