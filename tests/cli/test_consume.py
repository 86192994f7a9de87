"""`redrive consume`: what it needs, and what it says where that is missing. What it does is in tests/rabbitmq."""

import subprocess
import sys
from pathlib import Path

import pytest

from .command import clean_env, redrive
from .world import World

PROGRAM = """
from redrive import Redrive
from redrive.core.presets import PRESETS

app = Redrive()
idle = Redrive()
manual = Redrive()
unknown = Redrive()
named = Redrive("postgresql://nobody@127.0.0.1:1/none")


@app.consume("orders")
@unknown.consume("orders", policy="mine")
@manual.consume("orders", policy="manual")
@named.consume("orders")
def act(message):
    pass
"""
NOWHERE = "amqp://guest:canary@127.0.0.1:1/"


@pytest.fixture
def program(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(PROGRAM)
    return tmp_path


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--app", "shop:app"), 1, "There is no RabbitMQ to consume from: name it with --rabbitmq"),
        (("--app", "shop:app", "--rabbitmq", "http://x"), 2, "allowed is URLs that begin with amqp://"),
        (("--app", "shop:idle", "--rabbitmq", NOWHERE), 1, "shop:idle has no consumers. Register some with @idle"),
        (("--app", "shop:none", "--rabbitmq", NOWHERE), 2, "shop:none should be a redrive.Redrive"),
        (
            ("--app", "shop:app", "--queue", "sales", "--rabbitmq", NOWHERE),
            1,
            "shop:app has no consumer of sales. It has: orders.",
        ),
        (("--app", "shop:unknown", "--rabbitmq", NOWHERE), 1, 'names the policy "mine", which does not exist'),
        (("--app", "shop:manual", "--rabbitmq", NOWHERE), 1, "cannot use its policy: it never retries by itself"),
        (
            ("--app", "shop:app", "--queue-type", "stream", "--rabbitmq", NOWHERE),
            1,
            "The consumer of orders cannot run with these options: the type of a queue is classic or quorum",
        ),
        (
            ("--app", "shop:app", "--dead-letter-queue", "orders", "--rabbitmq", NOWHERE),
            1,
            "'orders' cannot be its own dead-letter queue",
        ),
        (("--app", "shop:named", "--rabbitmq", NOWHERE), 3, "are in a database that cannot be reached"),
    ],
)
async def test_what_it_cannot_do_is_explained(program: Path, words: tuple[str, ...], code: int, said: str) -> None:
    ended = await redrive("consume", *words, cwd=program)
    assert (ended.code, ended.out) == (code, "")
    assert said in " ".join(ended.err.split())
    assert "canary" not in ended.err


async def test_policies_are_those_of_the_database_that_is_named(program: Path, world: World) -> None:
    """One that is not there is missed where it is looked for."""
    ended = await redrive("consume", "--app", "shop:unknown", "--rabbitmq", NOWHERE, cwd=program, url=world.url)
    assert ended.code == 1
    assert 'names the policy "mine", which does not exist. Known are: none.' in " ".join(ended.err.split())


def test_without_the_extra_everything_else_works_and_consuming_says_what_to_install(program: Path) -> None:
    """The library of RabbitMQ is loaded by those who speak to it."""
    code = (
        "import sys; sys.modules['aiormq'] = sys.modules['pamqp'] = None\n"
        "import redrive, redrive.app, redrive.api_process, redrive.cli.main\n"
        f"sys.argv = ['redrive', 'consume', '--app', 'shop:app', '--rabbitmq', {NOWHERE!r}]\n"
        "redrive.cli.main.main()"
    )
    ended = subprocess.run([sys.executable, "-c", code], cwd=program, env=clean_env(), capture_output=True, text=True)
    assert (ended.returncode, ended.stderr.strip()) == (1, "Consuming needs aiormq: install redrive[rabbitmq].")
