"""The server of `codecnn view --serve`: its address, its numbers of chunks, and its time limit."""

import threading
import time
from socket import create_connection

import pytest

from codecnn.viewer import Page, PageServer


@pytest.fixture
def server():
    """Server of a page with two chunks, on which connections may last half a second."""
    page = Page("title", {"pictures": []}, [b"first", b"second"], 0, ())
    with PageServer(page, seconds=0.5) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        yield server
        server.shutdown()


def answer(server, path, host=None):
    """Send a request with any bytes in its path; return the status and the content."""
    with create_connection(server.server_address, timeout=20) as connection:
        head = f"GET {path} HTTP/1.1\r\nHost: {host or f'localhost:{server.server_port}'}\r\n\r\n"
        connection.sendall(head.encode())
        with connection.makefile("rb") as file:
            status, _, content = file.read().partition(b"\r\n\r\n")
    return int(status.split()[1]), content


def test_only_requests_with_the_token_are_answered(server):
    root = server.url.removeprefix(f"http://127.0.0.1:{server.server_port}")
    assert len(root) > 20
    assert server.server_address[0] == "127.0.0.1"
    status, content = answer(server, root)
    assert (status, b"title" in content) == (200, True)
    assert answer(server, f"{root}chunk/1") == (200, b"second")
    wrong = f"/{'x' * (len(root) - 2)}/"
    for path in ("/", "/chunk/0", wrong, f"{wrong}chunk/0", root[:-1], root[:-2] + "é/"):
        assert answer(server, path)[0] == 403
    assert answer(server, root, host="example.org")[0] == 403
    with PageServer(server.page) as other:
        assert other.root != root


@pytest.mark.parametrize("number", ["9" * 5000, "2", "-1", "01", "٣", "1x", "", "0/../1"])
def test_numbers_without_a_chunk_are_not_found(server, capfd, number):
    path = f"{server.root}chunk/{number}"
    assert answer(server, path)[0] == 404
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost: "])
def test_half_open_connections_are_closed(server, capfd, sent):
    with create_connection(server.server_address, timeout=20) as connection:
        connection.sendall(sent)
        # The answer to a request that is cut may be an error, but the connection ends.
        while connection.recv(1000):
            pass
    assert answer(server, server.root)[0] == 200
    assert capfd.readouterr().err == ""


def test_slow_readers_are_closed(capfd):
    page = Page("title", {"pictures": []}, [bytes(30_000_000)], 0, ())
    with PageServer(page, seconds=0.3) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        with create_connection(server.server_address, timeout=20) as connection:
            connection.sendall(
                f"GET {server.root}chunk/0 HTTP/1.0\r\nHost: localhost:{server.server_port}\r\n\r\n".encode()
            )
            time.sleep(0.8)
            received = 0
            try:
                while part := connection.recv(1 << 20):
                    received += len(part)
            except ConnectionError:
                pass
        server.shutdown()
    assert received < 30_000_000
    assert capfd.readouterr().err == ""
