"""A browser (Chromium, if installed) for tests of HTML pages."""

import contextlib
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import time

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium")
OPTIONS = (
    "--headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run --disable-background-networking "
    "--remote-debugging-pipe"
)
SECONDS = 60


class Browser:
    """Connection to Chromium by the DevTools protocol: JSON messages over two pipes, terminated by a zero byte."""

    def __init__(self, profile):
        (read, self.commands), (self.answers, write) = os.pipe(), os.pipe()
        # Chromium reads commands from descriptor 3 and answers on 4; these may be in use in this process.
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (read, write)]
        self.process = subprocess.Popen(
            [CHROMIUM, *OPTIONS.split(), f"--user-data-dir={profile}"],
            preexec_fn=lambda: [os.dup2(end, number) for number, end in zip((3, 4), ends, strict=True)],
            close_fds=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        for end in ends:
            os.close(end)
        os.close(read)
        os.close(write)
        self.buffer, self.count, self.events, self.session = b"", 0, [], None

    def close(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        os.close(self.commands)
        os.close(self.answers)

    def call(self, method, **parameters):
        self.count += 1
        message = {"id": self.count, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.receive()
            if answer.get("id") == self.count:
                assert "error" not in answer, answer
                return answer["result"]
            self.events.append(answer)

    def receive(self):
        end = time.monotonic() + SECONDS
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.answers], [], [], max(end - time.monotonic(), 0))
            assert ready, f"Chromium did not answer for {SECONDS} s"
            self.buffer += os.read(self.answers, 1 << 16)
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def open(self, path):
        self.open_url(path.as_uri())

    def open_url(self, url):
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Log", "Runtime", "Network"):
            self.call(f"{domain}.enable")
        self.size(1200, 900)
        before = len(self.events)
        self.call("Page.navigate", url=url)
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events[before:]):
            self.events.append(self.receive())

    def size(self, width, height):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def key(self, key, **more):
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, **more)

    def value(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def problems(self):
        """Return console output, errors of the page and violations of its content security policy."""
        return [
            event["params"]
            for event in self.events
            if event.get("method") in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")
        ]

    def requests(self):
        """Return the URL schemes of all network requests."""
        sent = [event["params"] for event in self.events if event.get("method") == "Network.requestWillBeSent"]
        return {event["request"]["url"].split(":", 1)[0] for event in sent}
