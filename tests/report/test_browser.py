"""The report in a browser: no errors, and no page wider than the screen.

Skipped where no Chromium is installed.
"""

import html
import json
import re
import shutil
import subprocess

import pytest

from calgrid.papers.report import write_report

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
BROWSER = next(filter(None, map(shutil.which, BROWSERS)), None)
#: it must not touch the network or a profile of the user; root needs --no-sandbox
OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--hide-scrollbars",
)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed"),
]
#: stands first in a page: notes errors, and tells the page around it
PROBE = """<script>
const errors = [];
addEventListener("error", (event) => errors.push(event.message));
console.error = (...words) => errors.push(words.join(" "));
addEventListener("load", () => {
  const { scrollWidth, clientWidth } = document.documentElement;
  parent.postMessage(JSON.stringify({ errors, scrollWidth, clientWidth }), "*");
});
</script>"""
#: a frame, because windows of Chromium have at least 500 pixels
FRAME = """<!doctype html><pre></pre><script>
addEventListener("message", ({ data }) => (document.querySelector("pre").textContent = data));
</script><iframe src="page.html" style="width: WIDTHpx; height: 900px; border: 0"></iframe>"""


@pytest.fixture(scope="module")
def page(make):
    """Report of a small study."""
    study = make(seeds=(0, 1))
    study.tables()
    study.figures()
    write_report(study.folder, study.manifest, study.folder / "report.html")
    return study.folder / "report.html"


def shown(page, width, folder):
    """What :data:`PROBE` finds in a page of this width."""
    text = page.read_text()
    (folder / "page.html").write_text(text.replace("<head>", f"<head>{PROBE}", 1))
    (folder / "frame.html").write_text(FRAME.replace("WIDTH", str(width)))
    given = (*OPTIONS, f"--user-data-dir={folder / 'profile'}", f"--window-size={width + 100},1000")
    address = (folder / "frame.html").as_uri()
    done = subprocess.run(
        [BROWSER, *given, "--virtual-time-budget=5000", "--dump-dom", address],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    (found,) = re.findall(r"<pre>(.*?)</pre>", done.stdout)
    return json.loads(html.unescape(found))


@pytest.mark.parametrize("width", [390, 1400])
def test_the_report_fits_the_screen_without_errors(page, tmp_path, width):
    found = shown(page, width, tmp_path)
    assert found["errors"] == []
    assert found["clientWidth"] == width
    assert found["scrollWidth"] == width


def test_nothing_sticks_out_of_a_printed_page(page, tmp_path):
    """Else a browser shrinks the text of all pages: A4 without its margins has 733 pixels."""
    printed = tmp_path / "printed.html"
    printed.write_text(page.read_text().replace("@media print", "@media all"))
    assert shown(printed, 733, tmp_path)["scrollWidth"] == 733
