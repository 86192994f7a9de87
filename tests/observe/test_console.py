"""Log lines at a terminal: what happened first, ids short, nothing that breaks the line or colours what is piped."""

import json
import os
import pty
import subprocess
import sys
from uuid import UUID

from redrive.observe.console import Console

AT = "2026-11-18T14:02:07.381250Z"
ID = UUID("01a1ec80-b088-7e25-af5c-458dd9254798")
SAY = """
import logging, os, sys
from redrive.observe.logs import set_up_logs
import structlog
for words in sys.argv[1:]:
    handle, log_format, level = words.split()
    os.dup2(int(handle), 2)
    set_up_logs(log_format, level, service="test")
    log = structlog.get_logger("redrive.test")
    log.info("quiet_one")
    log.warning("loud_one", event_id="01a1ec80-b088-7e25-af5c-458dd9254798", error="two words")
    logging.getLogger("asyncpg").warning("a library says %s", "so" * (9_000 if log_format == "json" else 1))
"""
SAY_IN_A_THREAD = """
import logging, threading
from redrive.observe import watch
from redrive.observe.logs import set_up_logs
import structlog
set_up_logs("json", "info", service="test")
ours, theirs = structlog.get_logger("redrive.test").warning, logging.getLogger("urllib3").warning
for say in ours, theirs:
    say("here")
    thread = threading.Thread(target=say, args=["there"])
    thread.start()
    thread.join()
print(watch.gallery.service)
"""


def test_a_line_reads_from_what_happened_to_whom() -> None:
    line = {"event": "delivery_failure", "level": "warning", "@timestamp": AT, "service": "redrive-worker"}
    facts = {"event_id": str(ID), "correlation_id": None, "next_retry_at": "2026-11-18T14:02:12+00:00", "attempt": 1}
    said = Console(colours=False)(None, "warning", line | facts | {"error": "HTTP 503\nBusy"})
    expected = (
        '14:02:07.381 warn  delivery_failure     attempt=1 error="HTTP 503 Busy" next_retry_at=14:02:12 event=…d9254798'
    )
    assert said == expected
    moved = {
        "event": "status_transition",
        "old_status": "queued",
        "new_status": "failed",
        "org_id": ID,
        "level": "info",
    }
    assert Console(colours=False)(None, "info", moved).split() == [
        "info",
        "status_transition",
        "status=queued→failed",
        "org=…d9254798",
    ]


def test_nothing_from_outside_moves_the_cursor_or_turns_the_line() -> None:
    evil = "\x1b[2J\u202elive\u2069\x9b1m"
    said = Console(colours=False)(None, "error", {"event": "a", "error": evil, "exception": f"one\n{evil}\ttwo"})
    first, *stack = said.split("\n")
    assert first.endswith('error=" [2J live  1m"')
    assert stack == ["one", " [2J live  1m\ttwo"]


def test_a_line_says_what_wrote_it_in_whichever_thread() -> None:
    said = subprocess.run([sys.executable, "-c", SAY_IN_A_THREAD], capture_output=True, check=True)
    written = [json.loads(line) for line in said.stderr.splitlines()]
    assert [(line["event"], line["service"]) for line in written] == [("here", "test"), ("there", "test")] * 2
    assert said.stdout == b"test\n"  # whoever watches is told, too


def test_a_terminal_gets_colours_a_pipe_none_and_libraries_speak_in_the_same_shape() -> None:
    ours, terminal = pty.openpty()
    read, write = os.pipe()
    env = {**os.environ, "TERM": "xterm"}
    env.pop("NO_COLOR", None)
    words = [f"{terminal} console warning", f"{write} console info", f"{write} json info"]
    subprocess.run([sys.executable, "-c", SAY, *words], pass_fds=[terminal, write], check=True, env=env)
    shown = os.read(ours, 10_000).decode()
    for handle in (ours, terminal, write):
        os.close(handle)
    assert "\x1b[33mwarn" in shown
    assert "quiet_one" not in shown

    with os.fdopen(read, encoding="utf-8") as pipe:
        piped = pipe.read().splitlines()
    assert "\x1b" not in "".join(piped)
    assert [line[13:].split()[:2] for line in piped[:2]] == [["info", "quiet_one"], ["warn", "loud_one"]]
    assert "a library says so" in piped[2]
    quiet, loud, library = map(json.loads, piped[3:])
    assert quiet.keys() == {"event", "level", "service", "@timestamp"}
    assert (loud["event_id"], loud["error"]) == (str(ID), "two words")
    assert (library["level"], library["service"]) == ("warning", "test")
    assert library["event"].startswith("a library says so")
    assert len(library["event"]) < 17_000  # as long as it likes, and cut
