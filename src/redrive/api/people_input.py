"""What people send about keys, users, orgs and sessions.

Unknown fields are refused; unknown words, with those there are.
"""

import re
from datetime import UTC, datetime
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, WithJsonSchema

from redrive.api.bulk_input import Id
from redrive.api.queries import MAX_FILTER_CHARS, Moment, plain
from redrive.core.limits import MAX_PAYLOAD_BYTES, MOST
from redrive.core.permissions import Role, Scope, role_named
from redrive.store.orgs import MAX_ORG_NAME_CHARS
from redrive.store.passwords import MAX_PASSWORD_CHARS, MIN_PASSWORD_CHARS
from redrive.store.users import MAX_EMAIL_CHARS, MAX_USER_NAME_CHARS

MAX_KEY_NAME_CHARS = 100
MAX_REQUESTS_PER_S = 1_000_000
MAX_ENDPOINTS = 100_000

_EMAIL = re.compile(r"[^@\s]+@[^@\s]+")


def _role(value: object) -> object:
    return role_named(value) if isinstance(value, str) else value


def _scope(value: object) -> object:
    if not isinstance(value, str) or value not in tuple(Scope):
        raise ValueError(f"must be one of {', '.join(Scope)}, or be left out")
    return Scope(value)


def _email(text: str) -> str:
    if not _EMAIL.fullmatch(text):
        raise ValueError("must be an e-mail address")
    return text.lower()


def _time(value: object) -> object:
    if not isinstance(value, str):
        raise ValueError("must be a time in ISO 8601")  # noqa: TRY004 (pydantic reads ValueErrors)
    return value


def _to_come(at: datetime) -> datetime:
    if at <= datetime.now(UTC):
        raise ValueError("must lie in the future")
    return at


def _password(given: SecretStr) -> SecretStr:
    if not MIN_PASSWORD_CHARS <= len(given.get_secret_value()) <= MAX_PASSWORD_CHARS:
        raise ValueError(f"must have {MIN_PASSWORD_CHARS} to {MAX_PASSWORD_CHARS} characters")
    return given


def _name(most: int) -> object:
    return Field(min_length=1, max_length=most)


RoleName = Annotated[Role, BeforeValidator(_role)]
ScopeName = Annotated[Scope, BeforeValidator(_scope)]
Email = Annotated[str, Field(max_length=MAX_EMAIL_CHARS), AfterValidator(plain), AfterValidator(_email)]
KeyName = Annotated[str, _name(MAX_KEY_NAME_CHARS), AfterValidator(plain)]
UserName = Annotated[str, _name(MAX_USER_NAME_CHARS), AfterValidator(plain)]
OrgName = Annotated[str, _name(MAX_ORG_NAME_CHARS), AfterValidator(plain)]
Called = Annotated[str, _name(MAX_FILTER_CHARS), AfterValidator(plain)]
NewPassword = Annotated[
    SecretStr,
    AfterValidator(_password),
    # For /openapi.json. The library's own check would speak of items.
    WithJsonSchema(
        {
            "type": "string",
            "format": "password",
            "writeOnly": True,
            "minLength": MIN_PASSWORD_CHARS,
            "maxLength": MAX_PASSWORD_CHARS,
        }
    ),
]
End = Annotated[Moment, Field(strict=False), BeforeValidator(_time), AfterValidator(_to_come)]


class _In(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


def _in(example: dict[str, object]) -> ConfigDict:
    # No input in errors: it may be a password.
    return ConfigDict(
        extra="forbid",
        strict=True,
        hide_input_in_errors=True,
        json_schema_extra={"examples": [example]},  # type: ignore[list-item]
    )


class LoginIn(_In):
    model_config = _in({"email": "ada@example.com", "password": "correct horse battery", "org": "default"})

    email: Email
    password: Annotated[SecretStr, Field(max_length=MAX_PASSWORD_CHARS)]
    org: Called | None = None


class SwitchIn(_In):
    model_config = _in({"org": "default"})

    org: Called


class KeyIn(_In):
    model_config = _in({"name": "web shop", "role": "IT_MANAGER", "scope": "produce"})

    name: KeyName
    role: RoleName
    scope: ScopeName | None = None
    endpoint_id: Id | None = None
    expires_at: End | None = None


class UserIn(_In):
    model_config = _in({"email": "ada@example.com", "name": "Ada", "role": "ADMIN"})

    email: Email
    name: UserName
    role: RoleName
    password: NewPassword | None = None


class UserChangeIn(_In):
    """The fields to change; what is left out stays. `current_password`: to change one's own."""

    model_config = _in({"role": "STAFF"})

    name: UserName | None = None
    role: RoleName | None = None
    suspended: bool | None = None
    password: NewPassword | None = None
    current_password: Annotated[SecretStr, Field(max_length=MAX_PASSWORD_CHARS)] | None = None

    @property
    def is_personal(self) -> bool:
        """Nothing that one may not change of oneself."""
        return self.role is None and self.suspended is None


class OrgIn(_In):
    model_config = _in({"name": "acme"})

    name: OrgName


class LimitsIn(_In):
    model_config = _in({"max_endpoints": 50})

    requests_per_s: Annotated[int, Field(ge=1, le=MAX_REQUESTS_PER_S)] | None = None
    burst: Annotated[int, Field(ge=1, le=MAX_REQUESTS_PER_S)] | None = None
    max_payload_bytes: Annotated[int, Field(ge=1, le=MAX_PAYLOAD_BYTES)] | None = None
    max_stored_bytes: Annotated[int, Field(ge=0, le=MOST)] | None = None
    max_endpoints: Annotated[int, Field(ge=0, le=MAX_ENDPOINTS)] | None = None

    def given(self) -> dict[str, int]:
        return self.model_dump(exclude_none=True)


class OrgChangeIn(_In):
    """The fields to change; what is left out stays."""

    model_config = _in({"default_policy": "triggers", "limits": {"max_endpoints": 50}})

    name: OrgName | None = None
    default_policy: Called | None = None
    limits: LimitsIn = Field(default_factory=LimitsIn)
