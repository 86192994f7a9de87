"""Policies: a list of them, and one in an editor whose plot of the schedule follows what is typed."""

from collections.abc import Sequence
from dataclasses import dataclass

from fastapi import APIRouter, Request, Response
from markupsafe import Markup

from redrive.api import shapes
from redrive.api.context import Context
from redrive.api.json_rules import BadJson, decode_strictly
from redrive.api.policy_input import read_policy
from redrive.api.problems import Problem, bad_query, not_found
from redrive.api.shapes import Shape
from redrive.core.outcome import Category
from redrive.core.policy import Policy, PolicyKind, PreviewRow, preview
from redrive.core.presets import DEFAULT_POLICY, PRESETS
from redrive.store import policies
from redrive.store.db import Record, Session
from redrive.store.policies import policy_of
from redrive.web import charts, policy_words
from redrive.web.frame import Frame, load_frame
from redrive.web.policy_strip import strip
from redrive.web.render import render
from redrive.web.visitor import PageRoute, Visitor

PATH = "/policies"
PAGE_POLICIES = 50
USERS_SHOWN = 20
MAX_DRAFT_CHARS = 8_192  # of a policy in an address: its schedule alone is asked for

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@dataclass(frozen=True, slots=True)
class PolicyRow:
    shape: Shape
    href: str
    schedule: str
    ends: str
    strip: Markup
    endpoints: int  # that name it


@dataclass(frozen=True, slots=True)
class PoliciesPage:
    frame: Frame
    policies: list[PolicyRow]
    total: int
    next_href: str | None
    first_href: str | None
    last_resort: str


@dataclass(frozen=True, slots=True)
class Schedule:
    """What a policy comes to, or what is wrong with it."""

    rows: Sequence[PreviewRow]
    plot: Markup | None = None
    goes_on: str | None = None
    is_manual: bool = False
    has_jitter: bool = False
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PolicyPage:
    """`name` is None for one that is being written."""

    frame: Frame
    name: str | None
    shape: Shape  # as GET /v1/policies/{name} has it, all fields of a schedule present
    policy: Policy
    schedule: Schedule
    users: list[Record]  # endpoints that name it
    more_users: int
    last_resort: str

    kinds = policy_words.KINDS
    categories = tuple(Category)
    path = PATH

    @property
    def may_edit(self) -> bool:
        return self.frame.may("manage")

    @property
    def in_words(self) -> str:
        return f"{policy_words.schedule(self.policy)}; ends {policy_words.ends(self.policy)}"

    @property
    def codes(self) -> dict[str, list[str]]:
        """The rules that are no category: status codes and their families."""
        spec = self.policy.to_spec()
        return {
            name: [str(rule) for rule in _rules(spec, name) if rule not in set(Category)] for name in ("retry", "fail")
        }

    @property
    def deletable(self) -> bool:
        return (
            not self.users and not self.shape["default"] and self.name not in (None, DEFAULT_POLICY, self.last_resort)
        )


def _rules(spec: dict[str, object], name: str) -> list[object]:
    classify = spec["classify"]
    assert isinstance(classify, dict)
    rules: list[object] = classify[name]
    return rules


@router.get(PATH)
async def policies_page(request: Request, visitor: Visitor, context: Context) -> Response:
    after = request.query_params.get("after")
    async with context.tenant(visitor) as session:
        frame = await load_frame(session, visitor, context, PATH)
        rows = await policies.list_policies(session)
        users = await policies.count_policy_users(session)
        last_resort = await policies.fallback_of(session)
    # All of them are few enough to be read at once, not to be drawn at once.
    names = [row["name"] for row in rows]
    left = rows[names.index(after) + 1 :] if after in names else rows
    shown = left[:PAGE_POLICIES]
    page = PoliciesPage(
        frame=frame,
        policies=[_row(row, users.get(row["name"], 0)) for row in shown],
        total=len(rows),
        next_href=f"{PATH}?after={shown[-1]['name']}" if len(left) > len(shown) else None,
        first_href=None if after is None else PATH,
        last_resort=last_resort,
    )
    return render(request, "policies.html", page)


def _row(row: Record, endpoints: int) -> PolicyRow:
    policy = policy_of(row)
    return PolicyRow(
        shape=shapes.policy(row),
        href=policy_words.href_of(row["name"]),
        schedule=policy_words.schedule(policy),
        ends=policy_words.ends(policy),
        strip=strip(preview(policy)),
        endpoints=endpoints,
    )


@router.get(f"{PATH}/plot")
async def plot(request: Request, visitor: Visitor) -> Response:
    """The schedule of a policy that is being written, for the editor to show: part of a page, not a page."""
    draft = request.query_params.get("policy", "")
    if len(draft) > MAX_DRAFT_CHARS:
        raise bad_query()
    return render(request, "policy_schedule.html", _drafted(draft))


def _drafted(draft: str) -> Schedule:
    try:
        given = decode_strictly(draft.encode())
    except (BadJson, UnicodeEncodeError):
        raise bad_query() from None
    if not isinstance(given, dict):
        raise bad_query()
    try:
        policy, _ = read_policy(given)
    except Problem as problem:
        told = [f"{'.'.join(map(str, error.loc[1:])) or 'policy'}: {error.msg}" for error in problem.errors]
        return Schedule((), problems=tuple(told))
    return _schedule(policy)


def _schedule(policy: Policy) -> Schedule:
    rows = preview(policy)
    return Schedule(
        rows,
        plot=charts.schedule("The wait before each retry", rows),
        goes_on=policy_words.goes_on(policy, len(rows)),
        is_manual=policy.kind is PolicyKind.MANUAL,
        has_jitter=policy.jitter > 0,
    )


@router.get(f"{PATH}/new")
async def new_policy_page(request: Request, visitor: Visitor, context: Context) -> Response:
    """Empty, or like the one that `like` names."""
    like = request.query_params.get("like", DEFAULT_POLICY)
    async with context.tenant(visitor) as session:
        frame = await load_frame(session, visitor, context, PATH)
        row = await policies.get_policy(session, like) if _may_be_name(like) else None
    policy = PRESETS[DEFAULT_POLICY] if row is None else policy_of(row)
    shape: Shape = policy.to_spec() | {"event_types": [], "default": False, "preset": False}
    return render(request, "policy.html", _page(frame, None, shape, policy, [], 0, DEFAULT_POLICY))


@router.get(f"{PATH}/{{name}}")
@router.get(f"{PATH}/{{name}}/edit")
async def policy_page(name: str, request: Request, visitor: Visitor, context: Context) -> Response:
    async with context.tenant(visitor) as session:
        frame = await load_frame(session, visitor, context, PATH)
        row = await policies.get_policy(session, name) if _may_be_name(name) else None
        if row is None:
            raise not_found("policy")
        users, more = await _users(session, name)
        last_resort = await policies.fallback_of(session)
    page = _page(frame, name, shapes.policy(row), policy_of(row), users, more, last_resort)
    return render(request, "policy.html", page)


def _may_be_name(text: str) -> bool:
    return text.isprintable()  # what no name can be is not asked for: the database takes no NUL


async def _users(session: Session, name: str) -> tuple[list[Record], int]:
    rows = await policies.list_policy_users(session, name, USERS_SHOWN)
    return rows, rows[0]["n"] - len(rows) if rows else 0


def _page(
    frame: Frame, name: str | None, shape: Shape, policy: Policy, users: list[Record], more: int, last_resort: str
) -> PolicyPage:
    # Changing the kind in the editor brings up fields that the stored one has no use for: with their defaults.
    usual: Shape = {"delays_s": [5, 30, 300], "base_s": 1, "factor": policy.factor, "cap_s": policy.cap_s}
    return PolicyPage(frame, name, usual | shape, policy, _schedule(policy), users, more, last_resort)
