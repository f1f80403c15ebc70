"""A headless Chromium, driven by its debugging protocol over two pipes (no further package)."""
import base64
import fcntl
import json
import os
import shutil
import subprocess
import time

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Page:
    """with Page(folder) as page: page.open(address); page.run("document.title")"""

    def __init__(self, folder, width=1280, height=1000):
        read, self.to = os.pipe()
        self.back, write = os.pipe()
        theirs, ours = (fcntl.fcntl(end, fcntl.F_DUPFD, 20) for end in (read, write))  # the browser's places, 3 and 4, are free then
        os.close(read)
        os.close(write)
        wrapper = ["bash", "-c", f'exec 3<&{theirs} 4>&{ours} {theirs}<&- {ours}>&-; exec "$@"', "x"]
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe", f"--user-data-dir={folder}/chromium",
                   "--no-first-run", "--disable-extensions", "--disable-background-networking", "--hide-scrollbars", f"--window-size={width},{height}", "about:blank"]
        self.process = subprocess.Popen([*wrapper, CHROMIUM, *options], pass_fds=(theirs, ours), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(theirs)
        os.close(ours)
        self.rest, self.number, self.session, self.faults = b"", 0, None, []
        target = next(one for one in self.ask("Target.getTargets")["targetInfos"] if one["type"] == "page")["targetId"]
        self.session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime"):
            self.ask(f"{domain}.enable")
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def ask(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters} | ({"sessionId": self.session} if self.session else {})
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in self.rest:
                piece = os.read(self.back, 1 << 16)
                if not piece:
                    raise RuntimeError("the browser has ended")
                self.rest += piece
            text, self.rest = self.rest.split(b"\0", 1)
            answer = json.loads(text)
            if answer.get("method") == "Runtime.exceptionThrown":
                self.faults.append(answer["params"]["exceptionDetails"])
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]

    def open(self, address):
        self.ask("Page.navigate", url=address)
        self.wait("document.readyState === 'complete' && location.href !== 'about:blank'")

    def run(self, script):
        answer = self.ask("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{script}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def wait(self, condition, seconds=300):
        until = time.monotonic() + seconds
        while not self.run(condition):
            if time.monotonic() > until:
                raise TimeoutError(f"{condition} is not true after {seconds} s: {self.run('document.body.innerText')}")
            time.sleep(0.1)

    def picture(self, path):
        path.write_bytes(base64.b64decode(self.ask("Page.captureScreenshot", format="png")["data"]))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
        os.close(self.to)
        os.close(self.back)
