"""Say which URLs may be saved and which IP addresses may be connected to. Pure: no lookup, no I/O.

`parse_target` is called when an endpoint is saved and before a request is built; `AddressRules.refusal`
by the API for literal addresses and by the delivering client on every address right before it connects.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network

MAX_URL_CHARS = 2048
MAX_HOST_CHARS = 253
MAX_LABEL_CHARS = 63
MAX_PORT = 65535
MAX_ALLOWED_NETWORKS = 256
MAX_PARSED_TARGETS = 4096

Ip = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_DEFAULT_PORTS = {"http": 80, "https": 443}

# The first network that holds the address gives the reason, so narrow ones stand before wide ones.
_REFUSED_V4 = tuple(
    (IPv4Network(network), reason)
    for network, reason in (
        ("0.0.0.0/32", "unspecified"),
        ("0.0.0.0/8", "reserved (this network)"),
        ("10.0.0.0/8", "private"),
        ("100.100.100.200/32", "cloud metadata"),
        ("100.64.0.0/10", "carrier-grade NAT (CGNAT)"),
        ("127.0.0.0/8", "loopback"),
        ("168.63.129.16/32", "cloud metadata"),
        ("169.254.169.254/32", "cloud metadata (link-local)"),
        ("169.254.170.2/32", "cloud metadata (link-local)"),
        ("169.254.0.0/16", "link-local"),
        ("172.16.0.0/12", "private"),
        ("192.0.0.192/32", "cloud metadata"),
        ("192.0.0.0/24", "reserved (protocol assignments)"),
        ("192.0.2.0/24", "documentation"),
        ("192.88.99.0/24", "reserved (6to4 relay)"),
        ("192.168.0.0/16", "private"),
        ("198.18.0.0/15", "benchmarking"),
        ("198.51.100.0/24", "documentation"),
        ("203.0.113.0/24", "documentation"),
        ("224.0.0.0/4", "multicast"),
        ("255.255.255.255/32", "broadcast"),
        ("240.0.0.0/4", "reserved"),
    )
)
_REFUSED_V6 = tuple(
    (IPv6Network(network), reason)
    for network, reason in (
        ("::/128", "unspecified"),
        ("::1/128", "loopback"),
        ("100::/64", "reserved (discard only)"),
        ("2001:2::/48", "benchmarking"),
        ("2001::/23", "reserved (protocol assignments)"),
        ("2001:db8::/32", "documentation"),
        ("3fff::/20", "documentation"),
        ("fd00:ec2::254/128", "cloud metadata"),
        ("fd20:ce::254/128", "cloud metadata"),
        ("fc00::/7", "private (unique local, ULA)"),
        ("fe80::/10", "link-local"),
        ("fec0::/10", "private (site-local)"),
        ("ff00::/8", "multicast"),
    )
)
_GLOBAL_UNICAST_V6 = IPv6Network("2000::/3")
_MAPPED = IPv6Network("::ffff:0:0/96")
_TEREDO = IPv6Network("2001::/32")
_SIX_TO_FOUR = IPv6Network("2002::/16")
_LOW_32_FORMS = (
    (_MAPPED, "IPv4-mapped"),
    (IPv6Network("::/96"), "IPv4-compatible"),
    (IPv6Network("::ffff:0:0:0/96"), "IPv4-translated"),
    (IPv6Network("64:ff9b::/96"), "NAT64"),
    (IPv6Network("64:ff9b:1::/48"), "local NAT64"),
)
_ISATAP_MARKS = frozenset({0x0000_5EFE, 0x0200_5EFE})
_UNSPECIFIED_OR_LOOPBACK = frozenset({IPv6Address("::"), IPv6Address("::1")})
_LOW_32 = 0xFFFF_FFFF

_VISIBLE = re.compile(r"[!-~]+", re.ASCII)
_SCHEME = re.compile(r"(https?)://", re.ASCII | re.IGNORECASE)
_PORT = re.compile(r"[1-9][0-9]{0,4}", re.ASCII)
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?", re.ASCII)
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*", re.ASCII)


class BadUrl(ValueError):
    """The URL cannot be a destination. The message is for people and never repeats the URL."""


@dataclass(frozen=True, slots=True)
class AddressRules:
    """Which addresses deliveries may reach: the public internet, and what `allowed_networks` opens."""

    allowed_networks: tuple[Network, ...] = ()

    @classmethod
    def parse(cls, text: str) -> "AddressRules":
        """Read CIDRs separated by commas or blanks, as in `127.0.0.0/8, ::1/128`."""
        parts = text.replace(",", " ").split()
        if len(parts) > MAX_ALLOWED_NETWORKS:
            raise ValueError(f"more than {MAX_ALLOWED_NETWORKS} allowed networks")
        networks: list[Network] = []
        for part in parts:
            try:
                networks.append(ip_network(part))
            except ValueError as error:
                raise ValueError(f"allowed network {part!r} is not a CIDR range: {error}") from None
        return cls(tuple(networks))

    def refusal(self, ip: Ip) -> str | None:
        """Why this address may not be connected to; None when it may.

        An IPv6 form that carries an IPv4 address is refused unless its own range is opened, and even
        then the IPv4 address inside must pass. An IPv4-mapped address is the one exception: it is opened
        by a range that holds the IPv4 address inside, since the kernel connects to just that.
        """
        if isinstance(ip, IPv4Address):
            return None if self._opened(ip) else _reason_v4(ip)
        if ip.scope_id is not None:
            return "link-local (has a zone)"
        mapped = ip.ipv4_mapped
        if mapped is not None and self._opened(mapped):
            return None
        form = None
        for form, inside in _ipv4_inside(ip):
            why = self.refusal(inside)
            if why is not None:
                return f"{form} form of {inside}, {why}"
        if self._opened(ip):
            return None
        return f"{form} form of an IPv4 address" if form else _reason_v6(ip)

    def _opened(self, ip: Ip) -> bool:
        return any(ip in network for network in self.allowed_networks)


def unreachable(target: "Target", rules: AddressRules) -> str | None:
    """Why nothing may be sent there, as far as it can be told without a look-up; None where it may."""
    why = rules.refusal(target.ip) if target.ip is not None else None
    if why is None:
        return None
    return (
        f"{target.ip} is not reachable for deliveries: {why}. If it is meant, start Redrive with its network "
        f"in REDRIVE_ALLOW_NETWORKS, as in REDRIVE_ALLOW_NETWORKS={target.ip}."
    )


def _reason_v4(ip: IPv4Address) -> str | None:
    return next((reason for network, reason in _REFUSED_V4 if ip in network), None)


def _reason_v6(ip: IPv6Address) -> str | None:
    for network, reason in _REFUSED_V6:
        if ip in network:
            return reason
    return None if ip in _GLOBAL_UNICAST_V6 else "reserved (not global unicast)"


def _ipv4_inside(ip: IPv6Address) -> Iterator[tuple[str, IPv4Address]]:
    bits = int(ip)
    if ip in _UNSPECIFIED_OR_LOOPBACK:
        return
    for network, form in _LOW_32_FORMS:
        if ip in network:
            yield form, IPv4Address(bits & _LOW_32)
    if ip in _SIX_TO_FOUR:
        yield "6to4", IPv4Address((bits >> 80) & _LOW_32)
    if ip in _TEREDO:
        yield "Teredo", IPv4Address((bits >> 64) & _LOW_32)
        yield "Teredo", IPv4Address(~bits & _LOW_32)  # the client's address is stored inverted
    if (bits >> 32) & _LOW_32 in _ISATAP_MARKS:
        yield "ISATAP", IPv4Address(bits & _LOW_32)


@dataclass(frozen=True, slots=True)
class Target:
    """Where a request goes. Made by `parse_target`; the path may hold secrets and stays out of the repr."""

    scheme: str
    host: str
    port: int
    path_and_query: str = field(repr=False)
    ip: Ip | None = None
    origin: tuple[str, str, int] = field(init=False, repr=False, compare=False)
    host_header: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.path_and_query.startswith("/") or _VISIBLE.fullmatch(self.path_and_query) is None:
            raise BadUrl("The path must begin with a slash and hold visible ASCII characters only.")
        host = f"[{self.host}]" if isinstance(self.ip, IPv6Address) else self.host
        if self.port != _DEFAULT_PORTS[self.scheme]:
            host = f"{host}:{self.port}"
        # Both are needed once per request; slots leave no room for a cached property.
        object.__setattr__(self, "origin", (self.scheme, self.host, self.port))
        object.__setattr__(self, "host_header", host)

    @property
    def is_literal(self) -> bool:
        """Whether the URL names an IP address instead of a host name."""
        return self.ip is not None


@lru_cache(maxsize=MAX_PARSED_TARGETS)
def parse_target(url: str) -> Target:
    """Take a destination URL apart, or raise BadUrl.

    Stricter than a browser on purpose: whatever two parsers could read in two ways is refused, so that
    the host that was checked is the host that is connected to.
    """
    if len(url) > MAX_URL_CHARS:
        raise BadUrl(f"The URL is longer than {MAX_URL_CHARS} characters.")
    scheme_match = _SCHEME.match(url)
    if scheme_match is None:
        raise BadUrl("The URL must begin with http:// or https://.")
    scheme = scheme_match[1].lower()
    rest = url[scheme_match.end() :]
    cut = next((at for at, char in enumerate(rest) if char in "/?#"), len(rest))
    authority, tail = rest[:cut], rest[cut:]
    _check_characters(authority, tail)
    host_text, port = _split_port(authority, _DEFAULT_PORTS[scheme])
    host, ip = _parse_host(host_text)
    path = tail if tail.startswith("/") else f"/{tail}"
    return Target(scheme=scheme, host=host, port=port, path_and_query=path, ip=ip)


def _check_characters(authority: str, tail: str) -> None:
    if not authority:
        raise BadUrl("The URL has no host.")
    if any(char <= " " or char == "\x7f" for char in authority + tail):
        raise BadUrl("The URL contains a space, a tab, a line break or another control character.")
    if "\\" in authority or "\\" in tail:
        raise BadUrl("The URL contains a backslash; use forward slashes.")
    if "#" in tail:
        raise BadUrl("The URL has a fragment (#…), which is never sent; remove it.")
    if "@" in authority:
        raise BadUrl("The URL contains a user name or password; use a header instead.")
    if "%" in authority:
        raise BadUrl("The host contains a percent sign (an escape or an IPv6 zone), which is not allowed.")
    if not authority.isascii():
        raise BadUrl("The host has characters outside ASCII; give its punycode form (xn--…).")
    if tail and _VISIBLE.fullmatch(tail) is None:
        raise BadUrl("The path or query has characters outside ASCII; percent-encode them.")


def _split_port(authority: str, default: int) -> tuple[str, int]:
    if authority.startswith("["):
        host, bracket, after = authority.partition("]")
        if not bracket:
            raise BadUrl("The IPv6 address lacks its closing bracket.")
        host += bracket
        if not after:
            return host, default
        colon, port = after[0], after[1:]
    else:
        host, colon, port = authority.partition(":")
        if not colon:
            return host, default
        if ":" in port:
            raise BadUrl("An IPv6 address must stand in brackets, as in http://[2606:4700::1]/.")
    if colon != ":" or _PORT.fullmatch(port) is None or int(port) > MAX_PORT:
        raise BadUrl(f"The port must be a number from 1 to {MAX_PORT}.")
    return host, int(port)


def _parse_host(text: str) -> tuple[str, Ip | None]:
    if text.startswith("["):
        try:
            address = IPv6Address(text[1:-1])
        except ValueError:
            raise BadUrl("The host in brackets is not an IPv6 address.") from None
        return str(address), address
    host = text.lower()
    if not host:
        raise BadUrl("The URL has no host.")
    if len(host) > MAX_HOST_CHARS:
        raise BadUrl(f"The host is longer than {MAX_HOST_CHARS} characters.")
    labels = host.split(".")
    if "" in labels:
        raise BadUrl("The host has an empty part: a leading, doubled or trailing dot.")
    # A last part that is a number makes every resolver read the whole host as an IPv4 address.
    if _NUMBER.fullmatch(labels[-1]) is not None:
        try:
            v4 = IPv4Address(host)
        except ValueError:
            raise BadUrl("An IPv4 address must be written as four decimal numbers, as in 192.0.2.7.") from None
        return host, v4
    for label in labels:
        if len(label) > MAX_LABEL_CHARS:
            raise BadUrl(f"A part of the host is longer than {MAX_LABEL_CHARS} characters.")
        if _LABEL.fullmatch(label) is None:
            raise BadUrl("The host may hold only letters, digits, hyphens, underscores and dots.")
    return host, None
