#!/usr/bin/env python3
"""Makes the site of the pages in docs/, in target/site; needs mdBook.

site.py [SOURCE]      SOURCE is the address of the repository's files, such as https://example.org/cudatrace/blob/main

Links to files outside of docs/ lead there; without SOURCE they are text.
"""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
OUTSIDE = re.compile(r'<a href="\.\./([^"]*)">(.*?)</a>', re.DOTALL)


def link(source, path, text):
    """A link to a file of the repository; mdBook has made `.html` of `.md`."""
    file, _, anchor = path.partition("#")
    if file.endswith(".html") and not (ROOT / file).exists():
        file = file[: -len("html")] + "md"
    assert (ROOT / file).exists(), path
    if not source:
        return text
    return f'<a href="{source.rstrip("/")}/{file}{"#" + anchor if anchor else ""}">{text}</a>'


def main():
    source = sys.argv[1] if len(sys.argv) > 1 else ""
    subprocess.run(["mdbook", "build", "docs"], cwd=ROOT, check=True)
    for page in (ROOT / "target/site").glob("*.html"):
        html = page.read_text()
        page.write_text(OUTSIDE.sub(lambda found: link(source, found[1], found[2]), html))


main()
