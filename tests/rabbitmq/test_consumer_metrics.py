"""`redrive consume --metrics-port`: what became of its messages, by queue, and whether it consumes."""

from pathlib import Path

from support.broker import Broker
from support.engine import until
from support.http import HttpClient
from support.processes import program

PROGRAM = """
from redrive import Redrive, RetryLater
from redrive.core.policy import Policy, PolicyKind

app = Redrive()


@app.consume("orders", policy=Policy(PolicyKind.EXPONENTIAL, base_s=0.05))
def act(message):
    if message.payload == "later" and message.attempt == 1:
        raise RetryLater("not yet")
    if message.payload == "never":
        raise ValueError("no such unit")
"""


async def test_a_consumer_counts_what_became_of_its_messages(broker: Broker, vhost_url: str, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(PROGRAM)
    env = {"REDRIVE_RABBITMQ_URL": vhost_url}
    async with program("consume", "--app", "shop:app", "--metrics-port", "0", env=env, cwd=tmp_path) as running:
        port = int(str((await running.said("metrics_at", within_s=60))["url"]).rpartition(":")[2].partition("/")[0])
        await running.said("consumer_started", within_s=60)
        for body in ("fine", "later", "never"):
            await broker.publish("orders", body)
        client = HttpClient("127.0.0.1", port)
        found: dict[str, float] = {}

        async def are_counted() -> bool:
            text = (await client.get("/metrics")).body.decode()
            lines = [line.rsplit(" ", 1) for line in text.splitlines() if line.startswith("redrive_consume")]
            found.update({name: float(value) for name, value in lines if "_bucket" not in name})
            return found.get('redrive_consumer_duration_seconds_count{process="consume",queue="orders"}') == 4

        await until(are_counted, within_s=20)
        assert (await client.get("/readyz")).status == 200
        client.close()
    assert sum(n for name, n in found.items() if name.startswith("redrive_consumer_retried_total")) == 1
    assert sum(n for name, n in found.items() if name.startswith("redrive_consumer_dead_lettered_total")) == 1
    assert found['redrive_consumed_total{process="consume",queue="orders"}'] == 2
