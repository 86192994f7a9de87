"""Health as /openapi.json describes it."""

from typing import Literal

from redrive.api.schemas.base import Answer, example


class Alive(Answer):
    model_config = example({"status": "ok"})

    status: Literal["ok"]


class Ready(Answer):
    model_config = example({"status": "ready"})

    status: Literal["ready"]
