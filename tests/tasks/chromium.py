"""A page in headless Chromium over its debugging pipe: evaluates JavaScript, prints to PDF, and keeps what the console reports."""
import base64
import fcntl
import json
import os
import shutil
import subprocess
import tempfile

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def pipe():
    """Its descriptors are above 9, so that the shell below can move them to 3 and 4."""
    low = os.pipe()
    high = [fcntl.fcntl(one, fcntl.F_DUPFD_CLOEXEC, 10) for one in low]
    for one in low:
        os.close(one)
    return high


class Chromium:
    """Usage: with Chromium() as browser: browser.open(path); browser.value("document.title")."""

    def __enter__(self):
        self.profile = tempfile.TemporaryDirectory()
        (to_browser, self.input), (self.output, from_browser) = pipe(), pipe()
        # The browser reads commands from descriptor 3 and writes to 4, each message ended by a zero byte.
        command = (f'exec 3<&{to_browser} 4>&{from_browser} {to_browser}<&- {from_browser}>&-; exec "$@"')
        self.process = subprocess.Popen(
            ["bash", "-c", command, "bash", PROGRAM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
             "--disable-background-networking", "--remote-debugging-pipe", f"--user-data-dir={self.profile.name}", "about:blank"],
            pass_fds=(to_browser, from_browser), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_browser)
        os.close(from_browser)
        self.number, self.rest, self.events, self.session = 0, b"", [], None
        target = next(one for one in self.send("Target.getTargets")["targetInfos"] if one["type"] == "page")
        self.session = self.send("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.send(f"{domain}.enable")
        return self

    def __exit__(self, *_):
        os.close(self.input)
        self.process.terminate()
        self.process.wait(30)
        os.close(self.output)
        self.profile.cleanup()

    def receive(self):
        while b"\0" not in self.rest:
            part = os.read(self.output, 1 << 20)
            if not part:
                raise RuntimeError("Chromium has ended")
            self.rest += part
        message, _, self.rest = self.rest.partition(b"\0")
        return json.loads(message)

    def send(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.input, data):]
        while (answer := self.receive()).get("id") != self.number:
            self.events.append(answer)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]

    def open(self, path):
        self.events.clear()
        self.send("Page.navigate", url=f"file://{path}")
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self.receive())

    def value(self, expression):
        answer = self.send("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(str(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def complaints(self):
        """Errors and warnings of the page: in the console, thrown, or of the browser about it."""
        found = []
        for event in self.events:
            if event.get("method") == "Runtime.exceptionThrown" or (event.get("method") == "Log.entryAdded" and event["params"]["entry"]["level"] in ("error", "warning")) or (
                    event.get("method") == "Runtime.consoleAPICalled" and event["params"]["type"] in ("error", "warning", "assert")):
                found.append(event["params"])
        return found

    def media(self, kind="", **features):
        self.send("Emulation.setEmulatedMedia", media=kind, features=[{"name": name.replace("_", "-"), "value": value} for name, value in features.items()])

    def width(self, pixels, height=900):
        self.send("Emulation.setDeviceMetricsOverride", width=pixels, height=height, deviceScaleFactor=1, mobile=False)

    def pdf(self):
        return base64.b64decode(self.send("Page.printToPDF", preferCSSPageSize=True, printBackground=True, paperWidth=8.27, paperHeight=11.69)["data"])

    def screenshot(self, whole=True):
        return base64.b64decode(self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"])
