"""The service's page in a real browser: an experiment is submitted, watched with its curve, cancelled, resumed and done; a fault of an experiment is shown.
The picture of the page is left in the build folder (serve_page.png)."""
import os
import pathlib
import sys
import tempfile
import unittest

from browser import CHROMIUM, Page
from service_process import SLOW, ServiceTests

PICTURE = pathlib.Path(os.environ["MAGISTER_BUILD_DIR"]) / "serve_page.png"


class ServePage(ServiceTests):
    def test_a_job_from_the_page(self):
        with tempfile.TemporaryDirectory() as folder:
            service = self.service("page", **SLOW)
            with Page(folder) as page:
                page.open(f"http://127.0.0.1:{service.port}/")
                self.submit(page, "name: [")
                page.wait("document.getElementById('fault').textContent !== ''")
                self.assertIn("experiment", page.run("document.getElementById('fault').textContent"))
                self.submit(page, self.texts("answers", tokens=250))
                page.wait("document.querySelector('#jobs .running') !== null")
                page.wait("document.getElementById('line').points.numberOfItems >= 2")
                self.assertRegex(page.run("document.getElementById('speed').textContent"), r"^[0-9.]+ now, at most [0-9.]+$")
                self.assertRegex(page.run("document.getElementById('place').textContent"), "^task answers, [0-9]+ of 3 units")
                page.wait("document.querySelectorAll('#ranks tr').length === 2")
                self.assertIn("no GPU", page.run("document.getElementById('without').textContent"))
                self.assertRegex(page.run("document.querySelector('#devices tr').textContent"), "host.*GB free")
                page.picture(PICTURE)
                page.run("document.getElementById('cancel').click()")
                page.wait("document.querySelector('#jobs .cancelled') !== null && !document.getElementById('resume').disabled")
                page.run("document.getElementById('resume').click()")
                page.wait("document.querySelector('#jobs .done') !== null")
                page.wait("document.getElementById('log').textContent.includes('is complete')")
                self.assertEqual(page.faults, [])
            self.assertEqual(PICTURE.read_bytes()[:4], b"\x89PNG")
            self.assertEqual(service.end(), 0)

    @staticmethod
    def submit(page, text):
        page.run(f"document.getElementById('experiment').value = {text!r}; document.getElementById('submit').click()")


if __name__ == "__main__":
    if not CHROMIUM:
        print("skipped: no chromium")
        sys.exit(77)
    unittest.main()
