"""Check a built site: ``python docs/check_site.py site``.

Links within the site lead to a file and to an id in it. Nothing that a browser loads by itself
(scripts, styles, images, fonts, frames) comes from another host. Links that a reader may follow to
other hosts are not checked, since a build must not need a network.
"""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

LOADED = {"img": "src", "script": "src", "iframe": "src", "source": "src", "link": "href"}
"""Elements that load something, and the attribute that says what."""

FOREIGN = r"(?:url\([\"']?|@import\s+[\"'])((?:https?:)?//[^)\"']+)"
"""What a style sheet loads from another host."""


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


def problems(site: Path) -> list[str]:
    """One sentence for each link that leads nowhere and each thing from another host."""
    files = [p for p in sorted(site.rglob("*.html")) if "_static" not in p.parts]  # templates there
    pages = {p.resolve(): Page(p.read_text("utf-8")) for p in files}
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


if __name__ == "__main__":
    sentences = problems(Path(sys.argv[1]))
    sys.stdout.write("".join(f"{sentence}\n" for sentence in sentences))
    sys.exit(1 if sentences else 0)
