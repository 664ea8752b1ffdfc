"""What may be called back: URLs and headers, as users write them."""

from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duetime.callback import (
    HEADERS_BYTES_MAX,
    HEADERS_MAX,
    check_headers,
    check_url,
    destination,
    header_text,
    parse_url,
)
from duetime.errors import InvalidInput

HOST = "must name a valid host"
PORT = "must have a port between 1 and 65535"
CHARACTERS = "must not hold whitespace, control characters or backslashes"
SCHEME = "must be an http or https URL"


@pytest.mark.parametrize(
    ("url", "origin", "host_header", "path"),
    [
        ("http://example.com", "http://example.com:80", "example.com", "/"),
        ("https://example.com", "https://example.com:443", "example.com", "/"),
        ("HTTPS://Example.COM:443/A", "https://example.com:443", "example.com", "/A"),
        ("http://h:8080/f/1?a=b&c=/d", "http://h:8080", "h:8080", "/f/1?a=b&c=/d"),
        ("http://h?a=/b", "http://h:80", "h", "/?a=/b"),
        ("http://h:1?a", "http://h:1", "h:1", "/?a"),
        ("http://h#/f", "http://h:80", "h", "/"),
        ("http://h/a#f?x", "http://h:80", "h", "/a"),
        ("http://h/a?b#f", "http://h:80", "h", "/a?b"),
        ("http://[::1]/", "http://[::1]:80", "[::1]", "/"),
        ("https://[0:0::1]:8443/", "https://[::1]:8443", "[::1]:8443", "/"),
        ("http://[::ffff:7f00:1]/", "http://[::ffff:127.0.0.1]:80", "[::ffff:127.0.0.1]", "/"),
        ("http://127.1/", "http://127.1:80", "127.1", "/"),
        ("http://a_b.svc.local./", "http://a_b.svc.local.:80", "a_b.svc.local.", "/"),
        ("http://bücher.example/", "http://xn--bcher-kva.example:80", "xn--bcher-kva.example", "/"),
        ("http://\uff11\uff127.0.0.1/", "http://127.0.0.1:80", "127.0.0.1", "/"),
        ("http://h/ä?ö=€", "http://h:80", "h", "/%C3%A4?%C3%B6=%E2%82%AC"),
        ('http://h/%7B{x}|"<>^`%zz', "http://h:80", "h", "/%7B%7Bx%7D%7C%22%3C%3E%5E%60%zz"),
        ("http://h/a/../b//c@d:[e]", "http://h:80", "h", "/a/../b//c@d:[e]"),
        ("http://h//x", "http://h:80", "h", "//x"),
    ],
)
def test_a_url_leads_to_an_origin_and_a_path(
    url: str, origin: str, host_header: str, path: str
) -> None:
    check_url(url)
    target = parse_url(url)
    assert target.origin == origin
    assert target.host_header.decode() == host_header
    assert target.path.decode() == path
    assert target.tls == origin.startswith("https:")
    assert f":{target.port}" in origin
    assert "[" not in target.host
    assert destination(url) == origin


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("", SCHEME),
        ("example.com", SCHEME),
        ("/path", SCHEME),
        ("ftp://example.com/", SCHEME),
        ("httpx://example.com/", SCHEME),
        ("http:/example.com", SCHEME),
        ("javascript:alert(1)", SCHEME),
        ("http://", "must name a host"),
        ("http:///path", "must name a host"),
        ("http://:80/", "must name a host"),
        ("http://?x", "must name a host"),
        ("http://user@h/", "must not hold a user name or password"),
        ("http://user:pass@h/", "must not hold a user name or password"),
        ("http://@h/", "must not hold a user name or password"),
        ("http://h:/", PORT),
        ("http://h:0/", PORT),
        ("http://h:65536/", PORT),
        ("http://h:123456/", PORT),
        ("http://h:-1/", PORT),
        ("http://h:8o/", PORT),
        ("http://h:\uff18\uff10/", PORT),
        ("http://h:1:2/", PORT),
        ("http://a..b/", HOST),
        ("http://.a/", HOST),
        ("http://a%2eb/", HOST),
        ("http://a,b/", HOST),
        ("http://" + "a" * 64 + "/", HOST),
        ("http://" + "ü" * 64 + "/", HOST),
        ("http://" + "a." * 150 + "/", "must name a host of at most 253 characters"),
        ("http://::1/", "must name a host"),
        ("http://[::1/", "must name a valid host, an IPv6 address in brackets"),
        ("http://[::1]x/", "must name a valid host, an IPv6 address in brackets"),
        ("http://[127.0.0.1]/", HOST),
        ("http://[fe80::1%25eth0]/", HOST),
        ("http://[fe80::1%eth0]/", HOST),
        (" http://h/", CHARACTERS),
        ("http://h/ ", CHARACTERS),
        ("http://h/a b", CHARACTERS),
        ("http://h /", CHARACTERS),
        ("http://h/\r\nX: y", CHARACTERS),
        ("http://h\r\nX: y/", CHARACTERS),
        ("http://h/\x00", CHARACTERS),
        ("http://h/\x7f", CHARACTERS),
        ("http://h/\x85", CHARACTERS),
        ("http://h/\u00a0", CHARACTERS),
        ("http://h/\u2028", CHARACTERS),
        ("http://h\\@evil/", CHARACTERS),
        ("http://h/a\\b", CHARACTERS),
        ("http://h/\ud800", CHARACTERS),
        ("http://h/" + "a" * 2_040, "must be at most 2048 characters"),
    ],
)
def test_a_url_that_cannot_be_called_is_refused(url: str, problem: str) -> None:
    with pytest.raises(ValueError) as refused:  # noqa: PT011 - the message is what counts.
        parse_url(url)
    assert str(refused.value).startswith(problem)
    with pytest.raises(ValueError) as refused_by_check:  # noqa: PT011
        check_url(url)
    assert str(refused_by_check.value) == str(refused.value)


def test_a_url_of_2048_characters_is_allowed() -> None:
    url = "http://h/".ljust(2_048, "a")
    assert parse_url(url).path == url[8:].encode()


def test_a_url_is_shown_without_its_query_and_default_port() -> None:
    assert parse_url("https://h:443/a?token=secret").shown == "https://h/a"
    assert parse_url("http://[::1]:8/ä?x").shown == "http://[::1]:8/%C3%A4"


@given(
    st.text(alphabet=st.characters(), max_size=40), st.sampled_from(["http://", "https://h/", ""])
)
def test_no_url_can_put_a_second_line_into_a_request(text: str, start: str) -> None:
    try:
        target = parse_url(start + text)
    except ValueError:
        return
    assert target.path.startswith(b"/")
    assert all(0x20 < byte < 0x7F for byte in target.path + target.host_header)
    assert target.host.isascii()
    assert 1 <= target.port <= 65_535
    assert destination(start + text) == target.origin


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer token123", "X-Custom-Header": "value"},
        {"Content-Type": "application/cloudevents+json"},
        {"X-Empty": "", "X-One": "x", "X-Spaces": "a b\tc", "!#$%&'*+-.^_`|~09azAZ": "x"},
        {"X-Timers": "not ours", "Via": "1.1 x", "Cookie": "a=b"},
        {f"X-{n}": "v" for n in range(HEADERS_MAX)},
        {"X": "v" * (HEADERS_BYTES_MAX - 1)},
    ],
)
def test_headers_that_http_allows_are_allowed(headers: dict[str, str]) -> None:
    check_headers(headers)


@pytest.mark.parametrize(
    "name",
    [
        "Host",
        "host",
        "Content-Length",
        "Transfer-Encoding",
        "TRANSFER-ENCODING",
        "Connection",
        "Keep-Alive",
        "Proxy-Connection",
        "Proxy-Authorization",
        "TE",
        "Trailer",
        "Upgrade",
        "Expect",
        "HTTP2-Settings",
        "User-Agent",
        "X-Timer-Id",
        "x-timer-attempt",
        "X-Timer-Signature",
    ],
)
def test_headers_that_frame_the_request_or_are_duetimes_own_are_refused(name: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        check_headers({"X-Fine": "x", name: "x"})
    assert refused.value.field == f"callback_headers/{name}"
    assert refused.value.problem == "must not be set: Duetime sets it itself"


@pytest.mark.parametrize(
    "name", ["", " ", "A B", "A:", "A\r\nB", "A\n", "A\x00", "Ä", "A\t", "(A)", "A/B", "A\x7f"]
)
def test_names_that_http_forbids_are_refused(name: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        check_headers({name: "x"})
    assert refused.value.field == f"callback_headers/{name}"
    assert refused.value.problem == "must be a valid header name"


@pytest.mark.parametrize(
    "value",
    ["a\r\nX: y", "a\n", "a\r", "\x00", "a\x00b", "\x1b", "\x7f", "ä", "€", " a", "a ", "\ta", " "],
)
def test_values_that_http_forbids_are_refused(value: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        check_headers({"X-Bad": value})
    assert refused.value.field == "callback_headers/X-Bad"
    assert refused.value.problem.startswith("must be visible ASCII characters")


def test_a_name_in_two_cases_is_refused() -> None:
    with pytest.raises(InvalidInput, match="must not be given twice"):
        check_headers({"X-A": "1", "x-a": "2"})


def test_headers_are_bounded_in_number_and_size() -> None:
    with pytest.raises(InvalidInput, match="callback_headers must be at most 64 headers"):
        check_headers({f"X-{n}": "v" for n in range(HEADERS_MAX + 1)})
    with pytest.raises(InvalidInput, match="callback_headers must be at most 8192 bytes in all"):
        check_headers({"X": "v" * HEADERS_BYTES_MAX})


@pytest.mark.parametrize(
    ("text", "header"),
    [
        ("order-1", "order-1"),
        ("a b", "a b"),
        ('a/b?c=d&e#f"<>\\', 'a/b?c=d&e#f"<>\\'),
        ("100%", "100%25"),
        ("%41", "%2541"),
        (" a b ", "%20a b%20"),
        ("  ", "%20%20"),
        ("a\r\nb", "a%0D%0Ab"),
        ("\t", "%09"),
        ("grüße", "gr%C3%BC%C3%9Fe"),
        ("⏰", "%E2%8F%B0"),
    ],
)
def test_an_id_is_encoded_only_where_a_header_cannot_carry_it(text: str, header: str) -> None:
    assert header_text(text) == header


@given(st.text(min_size=1))
def test_every_id_comes_back_from_its_header(text: str) -> None:
    header = header_text(text)
    check_headers({"X-Id": header})
    assert unquote(header) == text
