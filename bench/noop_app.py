"""An app whose handler does nothing: what is left is what Redrive itself takes. Run by bench.workflows' worker."""

from __future__ import annotations

from redrive import Redrive, Task

HANDLER = "noop"
app = Redrive()


@app.handler(HANDLER)
async def noop(task: Task) -> None:
    """Nothing."""
