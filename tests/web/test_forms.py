"""Forms that scripts send: where no script takes one up, what was typed never stands in an address."""

import re
from pathlib import Path

import redrive.web

TEMPLATES = Path(redrive.web.__file__).with_name("templates")
FORM = re.compile(r"<form\b[^>]*>")


def test_what_changes_something_is_no_get() -> None:
    forms = [form for path in TEMPLATES.glob("*.html") for form in FORM.findall(path.read_text())]
    unsafe = [form for form in forms if 'method="post"' not in form and 'method="dialog"' not in form]
    assert forms
    assert all('class="filters"' in form for form in unsafe), unsafe
