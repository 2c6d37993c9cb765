"""HTTP server on the loopback interface for tests."""

import contextlib
import threading
from http.server import ThreadingHTTPServer


@contextlib.contextmanager
def served(handler):
    """Serve requests in a thread, and yield the address of the server.

    Args:
        handler: Class that handles a request.
    """
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
