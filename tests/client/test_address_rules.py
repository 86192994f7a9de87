"""Which addresses may be connected to."""

from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address

import pytest
from hypothesis import given
from hypothesis.strategies import integers, ip_addresses

from redrive.core.address import AddressRules

PUBLIC_ONLY = AddressRules()


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("0.0.0.0", "unspecified"),
        ("0.1.2.3", "reserved"),
        ("10.1.2.3", "private"),
        ("172.16.0.1", "private"),
        ("172.31.255.255", "private"),
        ("192.168.1.1", "private"),
        ("100.64.0.1", "CGNAT"),
        ("100.127.255.255", "CGNAT"),
        ("100.100.100.200", "metadata"),
        ("127.0.0.1", "loopback"),
        ("127.255.255.254", "loopback"),
        ("169.254.169.254", "metadata"),
        ("169.254.170.2", "metadata"),
        ("169.254.1.1", "link-local"),
        ("168.63.129.16", "metadata"),
        ("192.0.0.192", "metadata"),
        ("192.0.0.8", "reserved"),
        ("192.0.2.1", "documentation"),
        ("198.51.100.7", "documentation"),
        ("203.0.113.9", "documentation"),
        ("198.18.0.1", "benchmarking"),
        ("198.19.255.255", "benchmarking"),
        ("192.88.99.1", "6to4 relay"),
        ("224.0.0.1", "multicast"),
        ("239.255.255.250", "multicast"),
        ("240.0.0.1", "reserved"),
        ("255.255.255.255", "broadcast"),
        ("::", "unspecified"),
        ("::1", "loopback"),
        ("::127.0.0.1", "IPv4-compatible form of 127.0.0.1, loopback"),
        ("::8.8.8.8", "IPv4-compatible"),
        ("::ffff:127.0.0.1", "IPv4-mapped form of 127.0.0.1, loopback"),
        ("::ffff:169.254.169.254", "metadata"),
        ("::ffff:8.8.8.8", "IPv4-mapped"),
        ("::ffff:0:10.0.0.1", "IPv4-translated form of 10.0.0.1, private"),
        ("64:ff9b::a9fe:a9fe", "NAT64 form of 169.254.169.254, cloud metadata"),
        ("64:ff9b::8.8.8.8", "NAT64"),
        ("64:ff9b:1::7f00:1", "local NAT64 form of 127.0.0.1, loopback"),
        ("64:ff9b:1::808:808", "local NAT64"),
        ("2002:7f00:1::", "6to4 form of 127.0.0.1, loopback"),
        ("2002:a9fe:a9fe::1", "metadata"),
        ("2002:808:808::1", "6to4"),
        ("2001:0:7f00:1::f7f7:f7f7", "Teredo form of 127.0.0.1, loopback"),
        ("2001:0:808:808::80ff:fefe", "Teredo form of 127.0.1.1, loopback"),
        ("2001:0:808:808::f7f7:f7f7", "Teredo"),
        ("2606:4700::5efe:10.0.0.1", "ISATAP form of 10.0.0.1, private"),
        ("2606:4700::200:5efe:127.0.0.1", "ISATAP form of 127.0.0.1, loopback"),
        ("100::1", "discard"),
        ("2001:2::1", "benchmarking"),
        ("2001:10::1", "reserved"),
        ("2001:db8::1", "documentation"),
        ("3fff::1", "documentation"),
        ("5f00::1", "reserved"),
        ("4000::1", "reserved"),
        ("fc00::1", "ULA"),
        ("fd12:3456::1", "ULA"),
        ("fd00:ec2::254", "metadata"),
        ("fe80::1", "link-local"),
        ("fe80::1%eth0", "zone"),
        ("fec0::1", "site-local"),
        ("ff02::1", "multicast"),
    ],
)
def test_an_address_off_the_public_internet_is_refused_with_its_reason(address: str, reason: str) -> None:
    assert reason in (PUBLIC_ONLY.refusal(ip_address(address)) or "allowed")


@pytest.mark.parametrize(
    "address", ["1.1.1.1", "8.8.8.8", "100.63.255.255", "172.32.0.1", "192.0.1.1", "2606:4700::1", "2a00:1450::5"]
)
def test_a_public_address_may_be_reached(address: str) -> None:
    assert PUBLIC_ONLY.refusal(ip_address(address)) is None


def test_an_allowed_network_opens_its_range_and_nothing_else() -> None:
    rules = AddressRules.parse("127.0.0.0/8, ::1/128 10.1.0.0/16")
    assert rules.refusal(ip_address("127.0.0.1")) is None
    assert rules.refusal(ip_address("::1")) is None
    assert rules.refusal(ip_address("10.1.2.3")) is None
    assert rules.refusal(ip_address("10.2.2.3")) == "private"
    assert rules.refusal(ip_address("169.254.169.254")) is not None


def test_an_allowed_ipv4_network_opens_its_mapped_form_but_no_translated_one() -> None:
    rules = AddressRules.parse("127.0.0.0/8")
    assert rules.refusal(ip_address("::ffff:127.0.0.1")) is None
    for form in ("::127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::"):
        assert rules.refusal(ip_address(form)) is not None


def test_opening_nat64_opens_public_addresses_behind_it_alone() -> None:
    rules = AddressRules.parse("64:ff9b::/96")
    assert rules.refusal(ip_address("64:ff9b::8.8.8.8")) is None
    assert "metadata" in (rules.refusal(ip_address("64:ff9b::a9fe:a9fe")) or "allowed")


def test_nothing_is_opened_by_an_empty_setting() -> None:
    assert AddressRules.parse("  ").allowed_networks == ()


@pytest.mark.parametrize("text", ["localhost", "10.0.0.1/8", "127.0.0.0/33", "::1/129", "1 2 3"])
def test_a_range_that_cannot_be_read_is_named_in_the_error(text: str) -> None:
    with pytest.raises(ValueError, match="is not a CIDR range"):
        AddressRules.parse(text)


def test_the_number_of_ranges_is_bounded() -> None:
    with pytest.raises(ValueError, match="more than"):
        AddressRules.parse(" ".join(["127.0.0.1"] * 300))


@given(ip_addresses(v=4))
def test_no_wrapping_of_a_refused_ipv4_address_is_allowed(address: IPv4Address) -> None:
    bits = int(address)
    wrapped = [
        IPv6Address(int(IPv6Network(prefix).network_address) | bits)
        for prefix in ("::ffff:0:0/96", "::/96", "::ffff:0:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48")
    ]
    wrapped += [IPv6Address((0x2002 << 112) | (bits << 80)), IPv6Address((0x20010000 << 96) | (bits << 64))]
    assert all(PUBLIC_ONLY.refusal(form) is not None for form in wrapped if int(form) > 1)


@given(integers(0, 2**128 - 1))
def test_no_ipv6_address_outside_global_unicast_is_allowed(bits: int) -> None:
    address = IPv6Address(bits)
    if PUBLIC_ONLY.refusal(address) is None:
        assert address in IPv6Network("2000::/3")
        assert address.is_global
