"""What an org may use of the installation, and the bucket that its requests are measured by. Pure: time is handed in.

Read by store.orgs and store.keys, enforced by the API.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields

MAX_PAYLOAD_BYTES = 1_048_576
MOST = 2**53 - 1  # what every JSON reader can hold


@dataclass(frozen=True, slots=True)
class Limits:
    """Generous: they are there so that one org cannot take everything from the others."""

    requests_per_s: int = 50_000  # of each API process: more than one can answer on ordinary machines
    burst: int = 100_000  # requests that may come at once, before that rate counts
    max_payload_bytes: int = MAX_PAYLOAD_BYTES
    max_stored_bytes: int = 100 * 1024**3
    max_endpoints: int = 1_000

    @classmethod
    def from_spec(cls, spec: Mapping[str, int] | None) -> "Limits":
        """The defaults, but for what is set. A name that a newer version set is passed by."""
        known = {field.name for field in fields(cls)}
        return cls(**{name: value for name, value in (spec or {}).items() if name in known})

    def to_spec(self) -> dict[str, int]:
        return asdict(self)


DEFAULT_LIMITS = Limits()


class Bucket:
    """Fills at a rate up to its size; each request takes one out."""

    __slots__ = ("_at_s", "_level", "rate_per_s", "size")

    def __init__(self, rate_per_s: float, size: float, now_s: float) -> None:
        assert rate_per_s > 0, "a bucket that never fills would answer no one"
        assert size >= 1, "a request must fit in"
        self.rate_per_s = rate_per_s
        self.size = size
        self._level = size
        self._at_s = now_s

    def take(self, now_s: float) -> float:
        """0.0 where one was taken; else the seconds until there is one."""
        if now_s > self._at_s:
            self._level = min(self.size, self._level + (now_s - self._at_s) * self.rate_per_s)
            self._at_s = now_s
        if self._level >= 1.0:
            self._level -= 1.0
            return 0.0
        return (1.0 - self._level) / self.rate_per_s
