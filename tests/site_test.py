"""Checks the documents: every link leads somewhere, headings included; and that they make a site.

usage: site_test.py links | site_test.py site
"""

import html.parser
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import small_runner

ROOT = pathlib.Path(__file__).resolve().parent.parent
WHAT = sys.argv.pop(1) if len(sys.argv) > 1 else "links"
LINK = re.compile(r"\]\(([^)\s]*)\)")


def documents():
    """Those that git knows; without git, or in sources that came without it, all but what was built."""
    if shutil.which("git"):
        listed = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=False)
        if listed.returncode == 0:
            return [ROOT / line for line in listed.stdout.splitlines()]
    return [path for path in ROOT.rglob("*.md")
            if not any(part.startswith((".", "build")) for part in path.relative_to(ROOT).parts[:-1])]


def without_code(text):
    return re.sub(r"`[^`\n]*`", "", re.sub(r"```.*?```", "", text, flags=re.DOTALL))


def anchors(path):
    """The anchors of a document's headings, as GitHub makes them."""
    found = {}
    text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    for heading in re.findall(r"^#+ +(.+?) *$", text, re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        anchor = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        count = found.get(anchor, 0)
        found[anchor] = count + 1
        if count:
            found[f"{anchor}-{count}"] = 1
    return set(found)


def test_links():
    links, dead = 0, []
    for path in documents():
        for link in LINK.findall(without_code(path.read_text(encoding="utf-8"))):
            if re.match(r"[a-z]+:", link):
                continue
            links += 1
            file, _, anchor = link.partition("#")
            target = path if not file else path.parent / file
            if target.is_dir():
                target = target / "README.md" if anchor else target
            if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
                dead.append(f"{path.relative_to(ROOT)}: {link}")
    assert not dead, "\n".join(dead)
    assert links > 150, links
    print(f"{links} links")


class Links(html.parser.HTMLParser):
    """What a page links to, and the places in it that others may link to."""

    def __init__(self, path):
        super().__init__()
        self.links, self.places = [], set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.places.add(attributes.get("id"))
        for name in ("href", "src"):
            if attributes.get(name):
                self.links.append(attributes[name])


def test_site():
    if shutil.which("mkdocs") is None:
        raise small_runner.Skip("mkdocs is not installed")
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "site"
        done = subprocess.run([ROOT / "sim/site/build", out], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        pages = {path: Links(path) for path in out.rglob("*.html")}
        dead = []
        for path, page in pages.items():
            for link in page.links:
                file, _, place = link.partition("#")
                if re.match(r"[a-z]+:|//", link) or path.name == "404.html" or file.startswith("/"):
                    continue
                target = (path.parent / file).resolve() if file else path
                if target.is_dir():
                    target = target / "index.html"
                if not target.exists() or (place and target in pages and place not in pages[target].places):
                    dead.append(f"{path.relative_to(out)}: {link}")
        assert not dead, "\n".join(sorted(set(dead)))
        text = (out / "llms.txt").read_text(encoding="utf-8")
        for page in re.findall(r"\]\((\S+\.md)\)", text):
            assert (out / page).is_file(), page
    print(f"{len(pages)} pages")


if __name__ == "__main__":
    sys.exit(small_runner.main({name: value for name, value in globals().items() if name == f"test_{WHAT}"}))
