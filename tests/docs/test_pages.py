"""The README as GitHub shows it and the home page of the site, in Chromium."""

import functools
import os
import shutil
import subprocess
import sys
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import cmarkgfm
import pytest

from support.chromium import IS_LOADED, needs_chromium, running_chromium

ROOT = Path(__file__).resolve().parents[2]
PICTURES = ROOT / "docs" / "pictures"
LIKE_GITHUB = """\
<!doctype html><html lang="en"><head><meta charset="utf-8"><title>README</title><style>
body { color: #1f2328; background: #fff } a { color: #0969da }
@media (prefers-color-scheme: dark) {
  body { color: #f0f6fc; background: #0d1117 } a { color: #4493f8 }
}
main { max-width: 830px; margin: auto } img { max-width: 100% }
pre, table { display: block; overflow: auto }
</style></head><body><main>README</main></body></html>
"""


class Files(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        """Print no line for a request."""


@pytest.fixture(scope="module")
def chromium():
    with running_chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The URL of the site, with the README beside it."""
    folder = tmp_path_factory.mktemp("pages")
    subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", folder],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        check=True,
    )
    shutil.copytree(PICTURES, folder / "docs" / "pictures")
    (folder / "README.html").write_text(LIKE_GITHUB.replace("README</main>", readme() + "</main>"))
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Files, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def readme():
    """GitHub's HTML, in which people can scroll with the keyboard."""
    html = cmarkgfm.markdown_to_html_with_extensions(
        (ROOT / "README.md").read_text(),
        cmarkgfm.Options.CMARK_OPT_UNSAFE,
        ["table", "autolink", "strikethrough", "tasklist"],
    )
    return html.replace("<pre>", "<pre tabindex=0>").replace("<table>", "<table tabindex=0>")


@needs_chromium
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
@pytest.mark.parametrize("page", ["README.html", ""], ids=["README", "home"])
def test_everyone_can_use_the_page_and_sees_the_pictures_of_the_theme(
    chromium, site, page, width, dark
):
    other_theme = "-light." if dark else "-dark."
    with chromium.open(f"{site}/{page}", width, dark=dark, ready=IS_LOADED) as tab:
        tab.wait("document.querySelectorAll('img').length > 0")
        pictures = tab.js(
            "[...document.querySelectorAll('img')].filter(one => one.offsetWidth)"
            ".map(one => [one.currentSrc, one.naturalWidth])"
        )
        assert pictures
        assert [url for url, pixels in pictures if other_theme in url or not pixels] == []
        assert not tab.js("document.documentElement.scrollWidth > innerWidth")
        assert tab.violations() == []


def test_the_readme_is_read_in_a_few_minutes():
    assert len((ROOT / "README.md").read_text().split()) <= 900


def test_pictures_are_small():
    sizes = {file.name: file.stat().st_size for file in PICTURES.iterdir()}

    assert {name: size for name, size in sizes.items() if size > 150_000} == {}
