"""A browser for tests: headless Chromium over its DevTools pipe, with real clicks and keys.

The pipe needs nothing but the standard library; a driver package would bring its own browser or
server process.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

KEYS = {
    "ArrowUp": 38, "ArrowDown": 40, "ArrowLeft": 37, "ArrowRight": 39, "Enter": 13, "Escape": 27,
    "Home": 36, "End": 35, "PageUp": 33, "PageDown": 34, "Tab": 9, " ": 32, "Delete": 46,
    "+": 187, "-": 189, "0": 48,
}  # fmt: skip
CONTROL = 2
SHIFT = 8


def find_chromium() -> str:
    """The program, or skip the test."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if program := shutil.which(name):
            return program
    pytest.skip("no chromium, chromium-browser or google-chrome on this machine")


class Browser:
    """One page of a running browser."""

    def __init__(self, reads: int, writes: int) -> None:
        self._reads, self._writes = reads, writes
        self._rest = b""
        self._number = 0
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and wait for its result; what happens meanwhile goes to ``events``."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        sent = json.dumps(message).encode() + b"\0"
        while sent:
            sent = sent[os.write(self._writes, sent) :]
        while True:
            answer = self._next(60)
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, answer["error"])
                return dict(answer["result"])
            self.events.append(answer)

    def _next(self, seconds: float) -> dict[str, Any]:
        until = time.monotonic() + seconds
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._reads], [], [], max(0.0, until - time.monotonic()))
            assert ready, f"the browser did not answer within {seconds} s"
            read = os.read(self._reads, 1 << 20)
            assert read, "the browser has gone"
            self._rest += read
        line, _, self._rest = self._rest.partition(b"\0")
        return dict(json.loads(line))

    def open(self, path: Path, width: int = 1300, height: int = 800, dark: bool = False) -> None:
        """Show a file in a window of a size, at once and afresh."""
        self.resize(width, height)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.evaluate("window.isLeft = true")  # else the page before is taken for the new one
        self.call("Page.navigate", url=path.as_uri())
        self.wait_for("!window.isLeft && document.readyState === 'complete'")

    def resize(self, width: int, height: int) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1}
        self.call("Emulation.setDeviceMetricsOverride", mobile=width < 600, **size)

    def evaluate(self, script: str) -> Any:
        """What an expression is in the page; promises are waited for."""
        result = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in result, (script, result["exceptionDetails"])
        return result["result"].get("value")

    def wait_for(self, script: str, seconds: float = 10.0) -> None:
        until = time.monotonic() + seconds
        while not self.evaluate(f"Boolean({script})"):
            assert time.monotonic() < until, f"never came true: {script}"
            time.sleep(0.02)

    def settle(self) -> None:
        """Wait for two frames: what was asked for is drawn."""
        self.evaluate("new Promise(r => requestAnimationFrame(() => requestAnimationFrame(r)))")

    def click(self, selector: str) -> None:
        """A mouse click in the middle of an element; what lies above it would be hit instead."""
        quoted = json.dumps(selector)
        self.evaluate(f"document.querySelector({quoted}).scrollIntoView({{block: 'nearest'}})")
        self.settle()
        box = self.evaluate(
            f"(b => [b.x + b.width / 2, b.y + b.height / 2])"
            f"(document.querySelector({quoted}).getBoundingClientRect())"
        )
        self.click_at(*box)

    def click_at(self, x: float, y: float) -> None:
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
        self.settle()

    def drag(
        self, start: tuple[float, float], end: tuple[float, float], modifiers: int = 0
    ) -> None:
        """Press, move in three steps, release."""
        mouse = {"button": "left", "modifiers": modifiers}
        for kind, share in (("mousePressed", 0.0), *(("mouseMoved", i / 3) for i in (1, 2, 3))):
            x, y = (a + share * (b - a) for a, b in zip(start, end, strict=True))
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, buttons=1, **mouse)
        self.call("Input.dispatchMouseEvent", type="mouseReleased", x=end[0], y=end[1], **mouse)
        self.settle()

    def press(self, *keys: str, modifiers: int = 0) -> None:
        for key in keys:
            code = {"key": key, "code": key, "windowsVirtualKeyCode": KEYS[key]}
            written = {"Enter": {"text": "\r"}, " ": {"text": " "}}.get(key, {})
            for kind in ("keyDown", "keyUp"):
                typed = written if kind == "keyDown" else {}
                self.call("Input.dispatchKeyEvent", type=kind, modifiers=modifiers, **code, **typed)
        self.settle()

    def type(self, text: str) -> None:
        self.call("Input.insertText", text=text)
        self.settle()

    def screenshot(self, path: Path) -> Path:
        shot = self.call("Page.captureScreenshot", format="png")
        path.write_bytes(base64.b64decode(shot["data"]))
        return path

    def complaints(self) -> list[str]:
        """Whatever was said on the console, thrown, or refused by the page's policy."""
        names = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
        return [json.dumps(e["params"]) for e in self.events if e.get("method") in names]

    def requests(self) -> list[str]:
        """Addresses that were asked for."""
        sent = [e for e in self.events if e.get("method") == "Network.requestWillBeSent"]
        return [e["params"]["request"]["url"] for e in sent]


@contextmanager
def chromium(folder: Path) -> Iterator[Browser]:
    """Start the browser with a profile of its own, and end it."""
    program = find_chromium()
    from_here, to_browser = os.pipe()
    from_browser, to_here = os.pipe()
    command = [
        program, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--disable-sync",
        "--hide-scrollbars", "--remote-debugging-pipe", f"--user-data-dir={folder / 'profile'}",
    ]  # fmt: skip
    # the browser reads from descriptor 3 and writes to 4
    wrapped = ["bash", "-c", f'exec "$0" "$@" 3<&{from_here} 4>&{to_here}', *command]
    process = subprocess.Popen(
        wrapped,
        pass_fds=(from_here, to_here),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(from_here)
    os.close(to_here)
    try:
        yield Browser(from_browser, to_browser)
    finally:
        os.close(to_browser)  # the browser leaves when its pipe closes
        os.close(from_browser)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
