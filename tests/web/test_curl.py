"""A command to copy does what the try did, whatever stands in it."""

import subprocess

from hypothesis import given, settings
from hypothesis import strategies as st

from redrive.core.redact import REDACTED
from redrive.web.curl import MAX_BODY_CHARS, as_curl

URL = "https://receiver.example.com/hooks"
HOSTILE = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=40) | st.sampled_from(
    [
        "'; touch /tmp/owned; '",
        "$(id)",
        "`id`",
        '"',
        "\\",
        "\\\n",
        "@/etc/passwd",
        "!!",
        "a\nb",
        "-o x",
        "",
        "{a,b}[1-9]",
    ]
)


def _arguments(command: str) -> list[str]:
    """What curl would be given: a real shell reads the command, with curl replaced by something that tells."""
    script = f'curl() {{ printf "%s\\0" "$@"; }}\n{command}'
    ran = subprocess.run(["sh", "-c", script], capture_output=True, check=True, timeout=10)
    assert ran.stderr == b""
    return ran.stdout.decode().split("\x00")[:-1]


@settings(max_examples=60, deadline=None)
@given(url=HOSTILE, value=HOSTILE, body=HOSTILE)
def test_hostile_text_reaches_curl_as_it_is_and_the_shell_runs_none_of_it(url: str, value: str, body: str) -> None:
    arguments = _arguments(as_curl("POST", url, {"x-note": value}, body))
    header = f"x-note: {value}" if value else "x-note;"
    expected = ["--globoff", "--request", "POST", "--header", header, "--data-raw", body, "--url", url]
    assert arguments == expected


def test_what_is_hidden_is_left_to_be_filled_in_and_the_signature_named() -> None:
    command = as_curl("POST", URL, {"webhook-signature": REDACTED, "x-tenant": REDACTED}, "{}")
    assert REDACTED not in command
    assert "webhook-signature: v1,SIGN-IT" in command
    assert "x-tenant: FILL-IN" in command


def test_a_body_that_no_command_line_takes_is_read_from_a_file() -> None:
    for body in (None, "x" * (MAX_BODY_CHARS + 1), "a\x00b"):
        assert _arguments(as_curl("POST", URL, {}, body))[-4:-2] == ["--data-binary", "@payload.json"]
