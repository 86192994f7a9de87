"""The client against a real nginx: keep-alive limits, chunks, early refusals, TLS."""

import asyncio
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from redrive.destinations.client import FailureKind, TransferError

from .harness import Authority, a_client, on_both_loops, post, until

NGINX = shutil.which("nginx", path=os.environ.get("PATH", "") + ":/usr/sbin")
START_LIMIT_S = 10.0

CONFIGURATION = """
daemon off; master_process off; pid {folder}/nginx.pid; error_log {folder}/error.log; {user}
events {{ worker_connections 256; }}
http {{
  access_log off;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  keepalive_requests 3; client_max_body_size 64k;
  server {{
    listen 127.0.0.1:{plain}; listen 127.0.0.1:{tls} ssl;
    ssl_certificate {certificate}; ssl_certificate_key {key};
    location /ok {{ return 200 "ok"; }}
    location /empty {{ return 204; }}
    location /moved {{ return 301 /ok; }}
    location /chunked {{ gzip on; gzip_min_length 0; ssi on; default_type text/html; alias {folder}/page.html; }}
    location /big {{ alias {folder}/big.bin; }}
    location /cut {{ return 444; }}
  }}
  server {{ listen 127.0.0.1:{brief}; keepalive_timeout 1s 1s; location / {{ return 200 "brief"; }} }}
}}
"""


class Nginx:
    def __init__(self, plain: int, tls: int, brief: int, ca_pem: str) -> None:
        self.plain, self.tls, self.brief, self.ca_pem = plain, tls, brief, ca_pem


def free_ports(count: int) -> list[int]:
    holders = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [holder.getsockname()[1] for holder in holders]
    for holder in holders:
        holder.close()
    return ports


def await_port(process: subprocess.Popen[bytes], port: int, folder: Path) -> None:
    for _ in range(int(START_LIMIT_S / 0.05)):
        assert process.poll() is None, (folder / "error.log").read_text()
        with socket.socket() as probe:
            probe.settimeout(0.05)
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.05)
    pytest.fail("nginx did not start")


@pytest.fixture(scope="module")
def nginx(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nginx]:
    if NGINX is None:
        pytest.skip("NGINX IS NOT INSTALLED: the client was not tried against a real server (apt install nginx-light)")
    folder = tmp_path_factory.mktemp("nginx")
    authority = Authority.create()
    certificate, key = authority.server_files(folder, "127.0.0.1")
    (folder / "page.html").write_text("a page in chunks")
    (folder / "big.bin").write_bytes(b"z" * 1_000_000)
    plain, tls, brief = free_ports(3)
    configuration = folder / "nginx.conf"
    user = "user root;" if os.geteuid() == 0 else ""
    places = {"folder": folder, "user": user, "certificate": certificate, "key": key}
    configuration.write_text(CONFIGURATION.format(plain=plain, tls=tls, brief=brief, **places))
    process = subprocess.Popen([NGINX, "-p", str(folder), "-c", str(configuration), "-e", str(folder / "error.log")])
    try:
        await_port(process, plain, folder)
        yield Nginx(plain, tls, brief, authority.pem)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(10)


@on_both_loops
async def test_connections_are_reused_until_nginx_ends_them(nginx: Nginx) -> None:
    async with a_client() as client:
        answers = [await client.send(post(0, url=f"http://127.0.0.1:{nginx.plain}/ok"), timeout_s=5) for _ in range(9)]
        assert [(answer.status, answer.body) for answer in answers] == [(200, b"ok")] * 9
        fresh = [answer.timings.connect_ms is not None for answer in answers]
        assert fresh == [True, False, False] * 3


@on_both_loops
async def test_many_at_once_over_plain_and_tls(nginx: Nginx) -> None:
    async with a_client(max_connections=20, max_per_origin=8) as client:
        plain = post(0, url=f"http://127.0.0.1:{nginx.plain}/ok")
        secure = post(0, url=f"https://127.0.0.1:{nginx.tls}/ok", ca_pem=nginx.ca_pem)
        answers = await asyncio.gather(
            *(client.send(request, timeout_s=10) for request in (plain, secure) for _ in range(100))
        )
        assert {answer.status for answer in answers} == {200}


@on_both_loops
async def test_no_content_and_redirects_are_plain_answers(nginx: Nginx) -> None:
    async with a_client() as client:
        empty = await client.send(post(0, url=f"http://127.0.0.1:{nginx.plain}/empty"), timeout_s=5)
        moved = await client.send(post(0, url=f"http://127.0.0.1:{nginx.plain}/moved"), timeout_s=5)
    assert (empty.status, empty.body) == (204, b"")
    assert (moved.status, (moved.header(b"location") or b"").endswith(b"/ok")) == (301, True)


@on_both_loops
async def test_chunks_arrive_uncompressed_although_nginx_would_compress(nginx: Nginx) -> None:
    async with a_client() as client:
        request = post(0, b"", url=f"http://127.0.0.1:{nginx.plain}/chunked", method="GET")
        for _ in range(2):
            answer = await client.send(request, timeout_s=5)
            assert answer.header(b"transfer-encoding") == b"chunked"
            assert (answer.status, answer.body) == (200, b"a page in chunks")


@on_both_loops
async def test_a_large_answer_is_cut_at_the_cap(nginx: Nginx) -> None:
    async with a_client() as client:
        request = post(0, b"", url=f"http://127.0.0.1:{nginx.plain}/big", method="GET")
        answer = await client.send(request, timeout_s=5)
    assert (answer.body, answer.truncated) == (b"z" * 65536, True)


@on_both_loops
async def test_a_body_that_nginx_refuses_early_gets_its_413(nginx: Nginx) -> None:
    async with a_client() as client:
        request = post(0, b"x" * 8_000_000, url=f"http://127.0.0.1:{nginx.plain}/ok")
        assert (await client.send(request, timeout_s=10)).status == 413


@on_both_loops
async def test_a_connection_closed_without_answer_is_a_reset(nginx: Nginx) -> None:
    async with a_client() as client:
        with pytest.raises(TransferError) as caught:
            await client.send(post(0, url=f"http://127.0.0.1:{nginx.plain}/cut"), timeout_s=5)
    assert (caught.value.kind, caught.value.sent) == (FailureKind.RESET, True)


@on_both_loops
async def test_a_keep_alive_that_nginx_promised_briefly_is_given_up_in_time(nginx: Nginx) -> None:
    async with a_client() as client:
        request = post(0, url=f"http://127.0.0.1:{nginx.brief}/")
        assert (await client.send(request, timeout_s=5)).body == b"brief"
        await until(lambda: client.stats().open == 0)
        assert (await client.send(request, timeout_s=5)).body == b"brief"
