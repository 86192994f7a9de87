"""Answers that steps get and that are no JSON, or hardly: the run goes on with them, whatever came."""

from typing import Any

from redrive import StepTask
from support.holding import HoldingReceiver
from support.installation import Installation
from support.receiver import Answer

DEPTH = 990


def call(receiver: HoldingReceiver, name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "kind": "http", "url": f"{receiver.url}/{name}", **fields}


ANSWERS: dict[str, tuple[bytes, object]] = {
    "infinite": (b"1e999", "1e999"),
    "half-a-pair": (b'"\\ud800"', '"\\ud800"'),
    "bytes-of-half-a-pair": (b'"\xed\xa0\x80"', '"\ufffd\ufffd\ufffd"'),
    "byte-order-mark": (b'\xef\xbb\xbf{"a":1}', {"a": 1}),
    "utf-16": ('{"a":1}'.encode("utf-16-le"), '{\ufffd"\ufffda\ufffd"\ufffd:\ufffd1\ufffd}\ufffd'),
    "deep": (b"[" * DEPTH + b"]" * DEPTH, "[" * DEPTH + "]" * DEPTH),
    "nan": (b'{"a": NaN}', '{"a": NaN}'),
}


async def test_an_answer_that_is_not_quite_json_is_a_text_to_the_next_step(
    redrive: Installation, receiver: HoldingReceiver
) -> None:
    runs = {}
    for name, (answer, _) in ANSWERS.items():
        asked = call(receiver, "one", url=f"{receiver.url}/{name}")
        await redrive.api.workflow(name, asked, call(receiver, "two", body="{{ steps.one.output }}"))
        receiver.script(Answer(200, answer), path=f"/hook/{name}")
        runs[name] = await redrive.api.run(name)
    await redrive.work()
    for name, (_, output) in ANSWERS.items():
        run = await redrive.api.run_of(runs[name])
        assert (run["status"], run["steps"][0]["output"]) == ("SUCCESS", output), name


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
