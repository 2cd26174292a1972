"""A headless Chromium, driven by its DevTools protocol."""
import base64
import json
import os
import pathlib
import subprocess
import time
from typing import Any

PATIENCE_SECONDS = 60


def until(what: str, condition: Any) -> Any:
    """Asks again and again until the answer is true, and returns it."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (answer := condition()):
        assert time.monotonic() < deadline, f"never came true: {what}"
        time.sleep(0.1)
    return answer


class Browser:
    """One tab. `faults` has what the console was told, and each dialog."""

    def __init__(self, folder: pathlib.Path):
        import websocket  # of requirements.txt
        words = ["chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage",
                 "--remote-debugging-port=0", "--remote-allow-origins=*", "--force-color-profile=srgb", f"--user-data-dir={folder}", "about:blank"]
        with (folder.parent / "chromium.log").open("ab") as log:
            self._process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                             env=os.environ | {"HOME": str(folder), "LANG": "C.UTF-8"})
        active = folder / "DevToolsActivePort"
        port, path = until("Chromium runs", lambda: active.exists() and len(active.read_text().split()) == 2 and active.read_text().split())
        self._socket = websocket.create_connection(f"ws://127.0.0.1:{port}{path}", timeout=PATIENCE_SECONDS, max_size=None)
        self._last = 0
        self._session: str | None = None
        self.faults: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict:
        self._last += 1
        message = {"id": self._last, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        self._socket.send(json.dumps(message))
        while True:
            answer = json.loads(self._socket.recv())
            if answer.get("id") == self._last:
                assert "error" not in answer, f"{method}: {answer}"
                return answer["result"]
            self._note(answer.get("method", ""), answer.get("params", {}))

    def _note(self, event: str, told: dict) -> None:
        if event == "Runtime.exceptionThrown" or event == "Page.javascriptDialogOpening":
            self.faults.append(f"{event}: {json.dumps(told)[:500]}")
        elif event == "Runtime.consoleAPICalled" and told["type"] in ("error", "warning", "assert"):
            self.faults.append(f"console: {json.dumps(told['args'])[:500]}")
        elif event == "Log.entryAdded" and told["entry"]["level"] in ("error", "warning"):
            self.faults.append(f"log: {json.dumps(told['entry'])[:500]}")

    def open(self, url: str) -> None:
        self.call("Page.navigate", url=url)
        until("the page is loaded", lambda: self.value("document.readyState") == "complete")

    def value(self, expression: str) -> Any:
        """Of an expression, or of what its promise becomes."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, f"{expression[:200]}: {answer['exceptionDetails']}"
        return answer["result"].get("value")

    def show(self, colours: str, width: int, height: int) -> None:
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": colours}])
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)

    def picture(self, file: pathlib.Path) -> None:
        file.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)["data"]))

    def __enter__(self) -> "Browser":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(PATIENCE_SECONDS)
