"""Deliveries reach public addresses only, unless a network is opened on purpose."""

from support.holding import HoldingReceiver
from support.installation import installation
from support.oracle import assert_sound
from support.processes import worker

CLOSED = (
    "http://127.0.0.1/",
    "http://127.8.8.8:8080/",
    "http://0.0.0.0/",
    "http://10.0.0.7/",
    "http://172.16.0.1/",
    "http://192.168.1.1/",
    "http://169.254.169.254/latest/meta-data/",  # metadata
    "http://169.254.170.2/",
    "http://100.100.100.200/",
    "http://100.64.0.1/",  # CGNAT
    "http://224.0.0.1/",
    "http://255.255.255.255/",
    "http://[::]/",
    "http://[::1]/",
    "http://[fe80::1]/",
    "http://[fd00:ec2::254]/",
    "http://[fc00::1]/",
    "http://[ff02::1]/",
    "http://[::ffff:127.0.0.1]/",  # v4-mapped
    "http://[::ffff:a9fe:a9fe]/",
    "http://[::127.0.0.1]/",  # v4-compatible
    "http://[64:ff9b::a9fe:a9fe]/",  # NAT64
    "http://[64:ff9b::7f00:1]/",
    "http://[2002:7f00:1::]/",  # 6to4
    "http://[2002:a9fe:a9fe::]/",
)
ODD = (
    "http://2130706433/",
    "http://0x7f000001/",
    "http://0177.0.0.1/",
    "http://0x7f.0.0.1/",
    "http://127.1/",
    "http://127.0.1/",
    "http://127.0.0.1./",
    "http://１２７.0.0.1/",
    "http://①②⑦.0.0.1/",
    "http://127。0。0。1/",
    "http://user@127.0.0.1/",
    "http://example.com@127.0.0.1/",
    "http://user:pass@example.com/",
    "http://127.0.0.1\t/",
    "http://127.0.0\t.1/",
    "http://127.0.0.1\n/",
    "\thttp://127.0.0.1/",
    " http://example.com/",
    "http:/\\127.0.0.1/",
    "http://127.0.0.1\\@example.com/",
    "http://example.com#@127.0.0.1/",
    "http://%31%32%37.0.0.1/",
    "http://[::1%25lo]/",
    "http://[::1/",
    "//127.0.0.1/",
    "file:///etc/passwd",
    "gopher://127.0.0.1/",
    "http://",
    "http://example.com:99999/",
)


async def test_no_spelling_of_a_closed_address_can_be_saved(database_url: str) -> None:
    async with installation(database_url, allow="") as redrive:
        saved = []
        for url in (*CLOSED, *ODD):
            answer = await redrive.api.http.post("/v1/endpoints", {"name": "closed", "url": url})
            if answer.status != 422:
                saved.append((url, answer.status))
            else:
                assert [loc for loc, _ in answer.errors] == [["body", "url"]], (url, answer.body)
        assert saved == []
        assert (await redrive.api.get("/v1/endpoints"))["data"] == []
        public = await redrive.api.endpoint("https://example.com/hooks")
        changed = await redrive.api.http.request("PATCH", f"/v1/endpoints/{public['id']}", {"url": "http://127.0.0.1/"})
        assert changed.status == 422


async def test_an_opened_network_can_be_saved_but_not_in_odd_spellings(database_url: str) -> None:
    async with installation(database_url, allow="127.0.0.0/8") as redrive:
        await redrive.api.endpoint("http://127.0.0.1:9/hook")
        for url in ("http://2130706433/", "http://0177.0.0.1/", "http://user@127.0.0.1/", "http://10.0.0.7/"):
            answer = await redrive.api.http.post("/v1/endpoints", {"name": "odd", "url": url})
            assert answer.status == 422, url


async def test_a_name_that_leads_to_this_machine_is_refused_at_the_connection(
    database_url: str, receiver: HoldingReceiver
) -> None:
    async with (
        installation(database_url, allow="") as redrive,
        worker(database_url, env={"REDRIVE_ALLOW_NETWORKS": ""}),
    ):
        for name in ("localhost", "LocalHost"):
            endpoint = await redrive.api.endpoint(f"http://{name}:{receiver.port}/hook")
            await redrive.api.failed(await redrive.api.event(endpoint["id"]))
            letter = await redrive.api.letter(endpoint["id"])
            assert (letter["category"], letter["reason"], letter["retry_count"]) == ("configuration", "permanent", 0)
            assert "loopback" in letter["error_message"]
    assert receiver.requests == []
    await assert_sound(database_url)
