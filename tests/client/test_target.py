"""Which URLs may be saved as a destination."""

from ipaddress import ip_address
from urllib.parse import urlsplit

import pytest
from hypothesis import example, given
from hypothesis.strategies import text

from redrive.core.address import MAX_URL_CHARS, BadUrl, Target, parse_target


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("", "http://"),
        ("example.com", "http://"),
        ("ftp://example.com/", "http://"),
        ("file:///etc/passwd", "http://"),
        ("gopher://example.com/", "http://"),
        ("//example.com/", "http://"),
        (" https://example.com/", "http://"),
        ("https:///path", "no host"),
        ("https://?q", "no host"),
        ("https://:443/", "no host"),
        ("https://user@example.com/", "user name or password"),
        ("https://user:pass@example.com/", "user name or password"),
        ("https://example.com@127.0.0.1/", "user name or password"),
        ("https://example.com/#top", "fragment"),
        ("https://example.com#@127.0.0.1/", "fragment"),
        ("https://exam\tple.com/", "control character"),
        ("https://example.com/a\r\nx-evil: 1", "control character"),
        ("https://example.com/\n", "control character"),
        ("https://example.com/a b", "control character"),
        ("https://example.com/\x00", "control character"),
        ("https://example.com/\x7f", "control character"),
        ("https://example.com\\@127.0.0.1/", "backslash"),
        ("https://example.com/a\\b", "backslash"),
        ("http://2130706433/", "IPv4"),
        ("http://0177.0.0.1/", "IPv4"),
        ("http://0x7f.1/", "IPv4"),
        ("http://0x7f000001/", "IPv4"),
        ("http://127.1/", "IPv4"),
        ("http://127.0.1/", "IPv4"),
        ("http://127.0.0.0x1/", "IPv4"),
        ("http://127.0.0.1./", "dot"),
        ("http://2130706433./", "dot"),
        ("http://256.0.0.1/", "IPv4"),
        ("http://1.2.3.4.5/", "IPv4"),
        ("http://example.123/", "IPv4"),
        ("http://１２７.0.0.1/", "punycode"),
        ("http://127。0。0。1/", "punycode"),
        ("http://①②⑦.0.0.1/", "punycode"),
        ("http://١٢٧.0.0.1/", "punycode"),
        ("https://bücher.example/", "punycode"),
        ("https://example.com/grüße", "percent-encode"),
        ("http://%31%32%37.0.0.1/", "percent"),
        ("http://[fe80::1%25eth0]/", "percent"),
        ("http://[fe80::1%eth0]/", "percent"),
        ("https://example..com/", "dot"),
        ("https://.example.com/", "dot"),
        ("https://example.com./", "dot"),
        ("https://-example.com/", "letters"),
        ("https://example-.com/", "letters"),
        ("https://exa$mple.com/", "letters"),
        ("https://exam,ple.com/", "letters"),
        ("https://" + "a" * 64 + ".com/", "longer"),
        ("https://" + "a." * 127 + "com/", "longer"),
        ("https://example.com/" + "a" * MAX_URL_CHARS, "longer"),
        ("https://example.com:0/", "port"),
        ("https://example.com:65536/", "port"),
        ("https://example.com:99999/", "port"),
        ("https://example.com:/", "port"),
        ("https://example.com:080/", "port"),
        ("https://example.com:-1/", "port"),
        ("https://example.com:8o/", "port"),
        ("https://example.com:443:443/", "brackets"),
        ("https://::1/", "brackets"),
        ("https://[::1/", "bracket"),
        ("https://[::1]443/", "port"),
        ("https://[example.com]/", "IPv6"),
        ("https://[127.0.0.1]/", "IPv6"),
        ("https://[]/", "IPv6"),
    ],
)
def test_a_url_that_could_be_read_in_two_ways_is_refused_with_a_clear_message(url: str, message: str) -> None:
    with pytest.raises(BadUrl) as caught:
        parse_target(url)
    assert message in str(caught.value)


def test_a_url_is_taken_apart_into_what_a_request_needs() -> None:
    target = parse_target("HTTPS://Hooks.Example.COM/a/../b?x=1&y=%20")
    assert target == Target("https", "hooks.example.com", 443, "/a/../b?x=1&y=%20")
    assert target.origin == ("https", "hooks.example.com", 443)
    assert target.host_header == "hooks.example.com"
    assert not target.is_literal


@pytest.mark.parametrize(
    ("url", "host", "port", "path", "host_header"),
    [
        ("http://example.com", "example.com", 80, "/", "example.com"),
        ("http://example.com?x", "example.com", 80, "/?x", "example.com"),
        ("http://example.com:8080/", "example.com", 8080, "/", "example.com:8080"),
        ("https://example.com:80/", "example.com", 80, "/", "example.com:80"),
        ("http://my_service:3000/", "my_service", 3000, "/", "my_service:3000"),
        ("https://xn--bcher-kva.example/", "xn--bcher-kva.example", 443, "/", "xn--bcher-kva.example"),
        ("http://10.0.0.1/", "10.0.0.1", 80, "/", "10.0.0.1"),
        ("http://[2606:4700:0::1]:81/", "2606:4700::1", 81, "/", "[2606:4700::1]:81"),
        ("http://1a.2b.3c/", "1a.2b.3c", 80, "/", "1a.2b.3c"),
        ("https://example.com/a@b:c", "example.com", 443, "/a@b:c", "example.com"),
    ],
)
def test_what_is_left_out_gets_its_default(url: str, host: str, port: int, path: str, host_header: str) -> None:
    target = parse_target(url)
    assert (target.host, target.port, target.path_and_query, target.host_header) == (host, port, path, host_header)


def test_a_literal_address_is_parsed_and_left_to_the_rules() -> None:
    assert parse_target("http://169.254.169.254/").ip == ip_address("169.254.169.254")
    assert parse_target("http://[::ffff:7f00:1]/").ip == ip_address("::ffff:127.0.0.1")


def test_path_and_query_stay_out_of_the_repr_and_out_of_errors() -> None:
    assert "s3cret" not in repr(parse_target("https://example.com/s3cret?token=s3cret"))
    with pytest.raises(BadUrl) as caught:
        parse_target("https://s3cret:s3cret@example.com/s3cret?token=s3cret")
    assert "s3cret" not in str(caught.value)


def test_a_target_made_by_hand_cannot_smuggle_a_header() -> None:
    with pytest.raises(BadUrl):
        Target("http", "example.com", 80, "/ HTTP/1.1\r\nx-evil: 1")


@given(text(max_size=60).map(lambda tail: f"http://{tail}"))
@example("http://a/")
@example("http://a:1/?b")
def test_whatever_is_accepted_means_the_same_host_to_the_standard_library(url: str) -> None:
    try:
        target = parse_target(url)
    except BadUrl:
        return
    parts = urlsplit(url)
    assert (parts.hostname, parts.username) == (target.host, None) or target.is_literal
    assert (parts.port or 80) == target.port
    assert f"{target.path_and_query} {target.host_header}".isascii()
