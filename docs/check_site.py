"""Check a built site: ``python docs/check_site.py site``.

Links within the site lead to a file and to an id in it. Nothing that a browser loads by itself
(scripts, styles, images, fonts, frames) comes from another host. Links that a reader may follow to
other hosts are not checked, since a build must not need a network.

Where there is Chromium, no page is wider than a telephone.
"""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

LOADED = {"img": "src", "script": "src", "iframe": "src", "source": "src", "link": "href"}
"""Elements that load something, and the attribute that says what."""

FOREIGN = r"(?:url\([\"']?|@import\s+[\"'])((?:https?:)?//[^)\"']+)"
"""What a style sheet loads from another host."""


PHONE = 390
"""Pixels that every page fits into."""


class Page(HTMLParser):
    """The ids of a page, its links, and what it loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value for name, value in attrs if value}
        self.ids |= {found[name] for name in ("id", "name") if name in found}
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        if tag in LOADED and LOADED[tag] in found:
            self.loaded.append(found[LOADED[tag]])


def site_pages(site: Path) -> list[Path]:
    """Without the templates in ``_static``."""
    return [p.resolve() for p in sorted(site.rglob("*.html")) if "_static" not in p.parts]


def problems(site: Path) -> list[str]:
    """One sentence for each link that leads nowhere and each thing from another host."""
    pages = {p: Page(p.read_text("utf-8")) for p in site_pages(site)}
    found = [] if pages else [f"{site} has no page."]
    for path, page in pages.items():
        name = path.relative_to(site.resolve())
        found += [f"{name} loads {t}." for t in page.loaded if re.match(r"(\w+:)?//", t)]
        for target in [*page.links, *page.loaded]:
            if re.match(r"\w+:|//", target):
                continue
            file, fragment = urldefrag(target)
            goal = (path.parent / unquote(file.split("?")[0])).resolve() if file else path
            if goal.is_dir():
                goal /= "index.html"
            if not goal.is_file():
                found.append(f"{name}: {target} does not exist.")
            elif fragment and goal in pages and unquote(fragment) not in pages[goal].ids:
                found.append(f"{name}: {target} names no id of that page.")
    for path in sorted(site.rglob("*.css")):
        foreign = re.findall(FOREIGN, path.read_text("utf-8"))
        found += [f"{path.relative_to(site)} loads {target}." for target in foreign]
    return found


def wide_pages(site: Path) -> list[str]:
    """One sentence for each page that a telephone's screen would cut or have to scroll sideways."""
    if shutil.which("chromium") is None:
        return []
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from tests.browser import chromium

    found = []
    with tempfile.TemporaryDirectory() as folder, chromium(Path(folder)) as browser:
        for page in site_pages(site):
            if page.parent == site.resolve():  # it only leads on
                continue
            browser.open(page, PHONE)
            width = browser.evaluate("document.documentElement.scrollWidth")
            if width > PHONE:
                found.append(f"{page.relative_to(site.resolve())} is {width} pixels wide.")
    return found


if __name__ == "__main__":
    sentences = [*problems(Path(sys.argv[1])), *wide_pages(Path(sys.argv[1]))]
    sys.stdout.write("".join(f"{sentence}\n" for sentence in sentences))
    sys.exit(1 if sentences else 0)
