"""Follows every link within the built site, and refuses pages that load something from elsewhere.

`python docs/check_links.py docs/_build/html` ends with an error and names each link that leads to
no file, or to no place in it. Links to other sites are not followed: it needs no network.
"""

import sys
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """What a page links to, what it loads, and the places in it that can be linked to."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.places: set[str] = set()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        """Called for every tag."""
        given = {name: value or "" for name, value in attributes}
        self.places |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif tag in ("img", "script", "iframe", "source") and given.get("src"):
            self.loaded.append(given["src"])
        elif tag == "link" and given.get("rel") in ("stylesheet", "icon", "preload"):
            self.loaded.append(given.get("href", ""))


@cache
def read(path: Path) -> Page:
    """A page, parsed once."""
    page = Page()
    page.feed(path.read_text(encoding="utf-8"))
    return page


def broken(path: Path) -> list[str]:
    """What is wrong with the links of one page, in sentences."""
    page, wrong = read(path), []
    for link in page.links + page.loaded:
        parts = urlsplit(link)
        if parts.scheme or parts.netloc:
            if link in page.loaded and parts.scheme != "data":
                wrong.append(f"loads {link} from elsewhere")
            continue
        target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
        place = unquote(parts.fragment)
        if not target.exists():
            wrong.append(f"{link} leads to no file")
        elif place and target.suffix == ".html" and place not in read(target).places:
            wrong.append(f"{link} leads to no place in {target.name}")
    return wrong


def main(folder: Path) -> int:
    """How many links of the site are broken, after naming them."""
    pages = sorted(folder.resolve().rglob("*.html"))
    if not pages:
        sys.exit(f"{folder} has no pages: build the site first.")
    found = [
        f"{path.relative_to(folder.resolve())}: {why}" for path in pages for why in broken(path)
    ]
    print(
        "\n".join(found)
        or f"Links: {len(pages)} pages, every link within the site leads somewhere."
    )
    return len(found)


if __name__ == "__main__":
    sys.exit(min(main(Path(sys.argv[1])), 1))
