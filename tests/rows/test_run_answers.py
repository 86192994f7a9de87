"""Answers that steps get and that are no JSON, or hardly: the run goes on with them, whatever came."""

from typing import Any

import pytest

from redrive import StepTask
from support.holding import HoldingReceiver
from support.installation import Installation
from support.receiver import Answer

DEPTH = 990


def call(receiver: HoldingReceiver, name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "kind": "http", "url": f"{receiver.url}/{name}", **fields}


@pytest.mark.parametrize(
    ("answer", "output"),
    [
        (b"1e999", "1e999"),
        (b'"\\ud800"', '"\\ud800"'),
        (b'"\xed\xa0\x80"', '"\ufffd\ufffd\ufffd"'),
        (b'\xef\xbb\xbf{"a":1}', '\ufeff{"a":1}'),
        ('{"a":1}'.encode("utf-16-le"), '{\ufffd"\ufffda\ufffd"\ufffd:\ufffd1\ufffd}\ufffd'),
        (b"[" * DEPTH + b"]" * DEPTH, "[" * DEPTH + "]" * DEPTH),
        (b'{"a": NaN}', '{"a": NaN}'),
    ],
    ids=["infinite", "half a pair", "bytes of half a pair", "byte order mark", "utf-16", "deep", "nan"],
)
async def test_an_answer_that_is_not_quite_json_is_a_text_to_the_next_step(
    redrive: Installation, receiver: HoldingReceiver, answer: bytes, output: str
) -> None:
    await redrive.api.workflow("odd", call(receiver, "one"), call(receiver, "two", body="{{ steps.one.output }}"))
    receiver.script(Answer(200, answer), path="/hook/one")
    run_id = await redrive.api.run("odd")
    await redrive.work()
    run = await redrive.api.run_of(run_id)
    assert (run["status"], run["steps"][0]["output"]) == ("SUCCESS", output)


async def test_a_handler_that_returns_what_is_nested_too_deep_has_failed(redrive: Installation) -> None:
    async def deep(task: StepTask) -> object:
        value: list[object] = []
        for _ in range(100):
            value = [value]
        return value

    await redrive.api.workflow("deep", {"name": "deep", "kind": "handler", "handler": "deep"})
    run_id = await redrive.api.run("deep")
    await redrive.work({"deep": deep})
    (failed,) = (await redrive.api.run_of(run_id))["steps"]
    assert (failed["status"], failed["category"]) == ("DLQ", "validation")
    assert "nested deeper than 64 levels" in failed["error_message"]
