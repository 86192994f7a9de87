"""Definitions of workflows to try things with: any valid one, by chance."""

from hypothesis import strategies as st

# No half characters and no NUL, which a definition cannot hold; no braces but those of expressions.
TEXT = st.text(st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="{"), max_size=8)
NAMES = st.sampled_from(["charge", "_a", "ship-it", "Notify2", "x"])
DATA = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc") | st.text(max_size=4), inner),
    max_leaves=6,
)


def expressions(earlier: list[str]) -> st.SearchStrategy[str]:
    paths = ["input", "input.a", "input.a[0]", "input.b.c", "steps", "run.id", "run.correlation_id", "step.index"]
    paths += [f"steps.{name}.output" for name in earlier] + [f"steps.{name}.output.a" for name in earlier]
    defaults = st.sampled_from(["", ' ?? "d"', " ?? null", ' ?? {"a": []}', ' ?? ".."'])
    return st.builds(lambda path, default: f"{{{{ {path}{default} }}}}", st.sampled_from(paths), defaults)


def texts(earlier: list[str]) -> st.SearchStrategy[str]:
    return st.lists(TEXT | expressions(earlier), max_size=3).map("".join)


def templates(earlier: list[str]) -> st.SearchStrategy[object]:
    names = TEXT | st.sampled_from(["password", "amount"])
    return st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(-1e9, 1e9) | texts(earlier) | expressions(earlier),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
        max_leaves=5,
    )


@st.composite
def steps(draw: st.DrawFn, name: str, earlier: list[str]) -> dict[str, object]:
    kind = draw(st.sampled_from(["http", "handler", "emit", "wait"]))
    step: dict[str, object] = {"name": name, "kind": kind}
    expression = expressions(earlier)
    plain = st.text("abcXYZ019.-_", max_size=5).filter(lambda text: text not in (".", ".."))
    if kind == "http":
        step["url"] = "https://api.example.com/v1/" + draw(plain) + "a" + draw(expression) + "?q=" + draw(expression)
        if draw(st.booleans()):
            del step["url"]
            step["endpoint"] = "billing"
        step["method"] = draw(st.sampled_from(["GET", "POST", "PUT", "PATCH", "DELETE"]))
        step["headers"] = draw(
            st.dictionaries(st.sampled_from(["Authorization", "X-Key", "accept"]), plain | expression, max_size=3)
        )
        step["expected_status"] = draw(
            st.lists(st.sampled_from(["2xx", "4xx"]) | st.integers(200, 599), min_size=1, max_size=3)
        )
        template = "body"
    elif kind == "handler":
        step["handler"], template = "orders.notify", "input"
    elif kind == "emit":
        step |= {"event_type": "order.paid", "ordering_key": draw(st.none() | expression)}
        template = "payload"
    else:
        return step | draw(
            st.fixed_dictionaries({"wait_s": st.floats(0, 1e7) | st.integers(0, 9) | expression})
            | st.fixed_dictionaries({"until": st.just("2030-01-31T09:30:00Z") | expression})
        )
    if draw(st.booleans()):
        step[template] = draw(templates(earlier))
    return step | draw(
        st.fixed_dictionaries(
            {},
            optional={
                "policy": st.sampled_from(["workflow", {"kind": "list", "delays_s": [1, 2.5]}]),
                "max_retries": st.integers(0, 9),
                "timeout_s": st.floats(0.001, 300),
                "external_system": st.just("SAP"),
            },
        )
    )


@st.composite
def definitions(draw: st.DrawFn) -> dict[str, object]:
    names = draw(st.lists(NAMES, min_size=1, max_size=3, unique=True))
    return {
        "description": draw(st.none() | TEXT),
        "retention_s": draw(st.none() | st.integers(0, 10**6) | st.floats(0, 1e6)),
        "steps": [draw(steps(name, names[:at])) for at, name in enumerate(names)],
    }
