#!/usr/bin/env python3
"""Makes the site of the pages in docs/, in target/site; needs mdBook.

site.py [SOURCE]      SOURCE is the address of the repository's files, such as https://example.org/cudatrace/blob/main

Each script of docs/scripts.md becomes a page of its own, with its text. Links to files outside of docs/ lead to SOURCE; without it they are text.
"""

import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGES, SITE = ROOT / "target/site-pages", ROOT / "target/site"
OUTSIDE = re.compile(r'<a href="((?:\.\./)+)([^"]*)">(.*?)</a>', re.DOTALL)


def question(script):
    """The first line of a script's comment: what it answers."""
    return next(line for line in script.splitlines()[1:] if line.startswith("//")).lstrip("/ ").strip()


def script_page(name, text):
    """The page of a script, and its line in the list."""
    script = (ROOT / "scripts" / f"{name}.ct").read_text()
    # The page is one folder deeper than the text that it was.
    text = re.sub(r"\]\((?!\w+:)(#?)", lambda link: "](../scripts.md#" if link[1] else "](../", text)
    page = f"# {name}\n\n*{question(script)}*\n\n{text.strip()}\n\n## The script\n\n```c\n{script}```\n"
    (PAGES / "scripts" / f"{name}.md").write_text(page)
    return f"- [`{name}`](scripts/{name}.md): {question(script)}\n"


def split_scripts():
    """Makes the pages of the scripts, and a list of them in place of the long page. Returns the names."""
    page = PAGES / "scripts.md"
    (PAGES / "scripts").mkdir()
    parts = re.split(r"^(#{2,3}) (.*)\n", page.read_text(), flags=re.MULTILINE)
    names, left = [], [parts[0]]
    for level, title, text in zip(parts[1::3], parts[2::3], parts[3::3]):
        if level == "##":
            left.append(f"## {title}\n{text}")
        else:
            names.append(title)
            left.append(script_page(title, text))
    linked = re.compile("`(" + "|".join(names) + ")`")
    rows = re.compile(r"^\|.*\|$", re.MULTILINE)
    list_of_all = rows.sub(lambda row: linked.sub(r"[`\1`](scripts/\1.md)", row[0]), "".join(left))
    page.write_text(list_of_all)
    return names


def pages():
    """Copies the pages, with one for each script."""
    shutil.rmtree(PAGES, ignore_errors=True)
    shutil.copytree(ROOT / "docs", PAGES)
    names = split_scripts()
    link = re.compile(r"\(scripts\.md#(" + "|".join(names) + r")\)")
    for page in PAGES.glob("*.md"):
        page.write_text(link.sub(r"(scripts/\1.md)", page.read_text()))
    summary = PAGES / "SUMMARY.md"
    entry = "- [Scripts by name](scripts.md)\n"
    listed = "".join(f"  - [{name}](scripts/{name}.md)\n" for name in names)
    assert entry in summary.read_text()
    summary.write_text(summary.read_text().replace(entry, entry + listed))


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
    pages()
    subprocess.run(["mdbook", "build", "--dest-dir", SITE, PAGES], cwd=ROOT, check=True)
    for page in SITE.rglob("*.html"):
        depth = len(page.relative_to(SITE).parts)
        html = page.read_text()
        outside = lambda found: link(source, found[2], found[3]) if found[1].count("..") == depth else found[0]
        page.write_text(OUTSIDE.sub(outside, html))


main()
