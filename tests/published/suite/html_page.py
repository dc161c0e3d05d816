"""The page as one HTML file: the words and tables of VALIDATION.md, and pictures whose points say their row."""

import html
import json
import pathlib
import posixpath
import re

import curve
import page
import scatter

ROOT = pathlib.Path(__file__).resolve().parents[3]
TEMPLATE = pathlib.Path(__file__).with_name("page.html.in")
STYLE = ROOT / "sim" / "report" / "html" / "script" / "style.css"
# What a reader looks for first; all else follows in the order of the document.
FIRST = ("The ten worst, one of each job", "By group", "The picture", "Are the intervals right?", "What is not known")
LAST = ("How to add a case",)
LAYOUTS = {"wide": scatter.WIDE, "narrow": scatter.NARROW}


def anchor(heading):
    """As GitHub makes it."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
    return re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")


def target(link, of_site):
    """A link of VALIDATION.md as seen from this page's folder, published/; `of_site`: documents are pages there."""
    if re.match(r"[a-z]+:|#", link):
        return link
    path, mark, place = link.partition("#")
    path = posixpath.relpath(path, "published")
    if of_site and path.endswith(".md"):
        path = re.sub(r"README\.md$", "index.md", path)[: -len(".md")] + ".html"
    return path + mark + place


def inline(text, of_site):
    """Markdown within a line as HTML."""
    codes = []

    def kept(match):
        codes.append(f"<code>{html.escape(match[1])}</code>")
        return f"\0{len(codes) - 1}\0"

    text = html.escape(re.sub(r"`([^`]+)`", kept, text), quote=False)
    text = re.sub(r"(?<=\d) (?=(%|ms|s)(\W|$))", "\u00a0", text)  # No line ends between a figure and its unit,
    text = re.sub(r"(?<=\d\+\d)\+(?=\d)", "+<wbr>", text)  # and long placements end anywhere.
    text = re.sub(r"\[([^\]]*)\]\(([^)\s]+)\)", lambda match: f'<a href="{html.escape(target(match[2], of_site))}">{match[1]}</a>', text)
    text = re.sub(r"\*\*(.+?)\*\*", r"<strong>\1</strong>", text, flags=re.DOTALL)
    text = re.sub(r"(?<![\w*])\*([^*\s][^*]*?)\*(?![\w*])", r"<em>\1</em>", text)
    return re.sub("\0(\\d+)\0", lambda match: codes[int(match[1])], text)


LONG = 60  # Characters of a cell that gets a wide column.


def table(lines, of_site):
    header, *rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines if not re.match(r"\|[\s:|-]+\|$", line)]
    numeric = [all(re.match(r"[-+]?[\d.]+( \S{1,8})?$|$", row[i]) for row in rows) and any(row[i] for row in rows) for i in range(len(header))]
    long = [any(len(row[i]) > LONG for row in rows) for i in range(len(header))]
    classes = [' class="number"' if number else ' class="long"' if wide else "" for number, wide in zip(numeric, long)]
    head = "".join(f"<th{kind}>{inline(cell, of_site)}</th>" for cell, kind in zip(header, classes))
    body = "".join("<tr>" + "".join(f"<td{kind}>{inline(cell, of_site)}</td>" for cell, kind in zip(row, classes)) + "</tr>\n" for row in rows)
    return f'<div class="scroll" tabindex="0" role="region" aria-label="{html.escape(header[0])}"><table><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table></div>'


def list_of(lines, of_site):
    """A list without lists inside; a line that begins with a blank goes on with the item before it."""
    items = []
    for line in lines:
        if line.startswith(" "):
            items[-1] += "\n" + line.strip()
        else:
            items.append(re.sub(r"^(-|\d+\.) ", "", line))
    kind = "ul" if lines[0].startswith("- ") else "ol"
    return f"<{kind}>" + "".join(f"<li>{inline(item, of_site)}</li>\n" for item in items) + f"</{kind}>"


def blocks(text, pictures, of_site):
    """Markdown of one section as HTML. `pictures`: {file of an image: its HTML}."""
    parts = []
    for block in re.split(r"\n{2,}", text.strip("\n")):
        lines = block.splitlines()
        if match := re.match(r"#+ (.*)", lines[0]):
            parts.append(f'<h3 id="{anchor(match[1])}">{inline(match[1], of_site)}</h3>')
        elif match := re.match(r"!\[[^\]]*\]\(([^)]+)\)$", block):
            parts.append(pictures[match[1]])
        elif block.startswith("|"):
            parts.append(table(lines, of_site))
        elif re.match(r"- |\d+\. ", block):
            parts.append(list_of(lines, of_site))
        else:
            parts.append(f"<p>{inline(block, of_site)}</p>")
    return "\n".join(parts)


def picture(svg, rows, answers):
    """Both widths of a picture, in the page's colours."""
    parts = []
    for name, layout in LAYOUTS.items():
        text = re.sub(r"<style>.*?</style>\n|<rect [^>]*class=\"paper\"[^>]*/>\n", "", svg(rows, layout), flags=re.DOTALL)
        for index, (_, colour) in enumerate(scatter.FAMILIES):
            text = text.replace(f'stroke="{colour}"', f'style="stroke: var(--kind-{index})"')
        text = text.replace(f'stroke="{curve.OF_ALL}"', 'style="stroke: var(--ink)"')
        attributes = f'class="{name}"' + (f' data-layout="{name}"' if answers else "")
        parts.append(text.replace("<svg ", f"<svg {attributes} ", 1))
    return f'<div class="picture">{"".join(parts)}</div>'


def panel_facts(panel, ratio):
    ends = {"x": panel.x_ends, "y": panel.y_ends}
    return {"ratio": ratio, "top": panel.top, "height": panel.height, "left": panel.layout.margin, "width": panel.across, "logs": ends}


def row_facts(rows):
    """What the script tells of a row."""
    facts = []
    for row in scatter.drawn(rows):
        one = {"kind": scatter.family(row), "measured": row.measured, "predicted": row.predicted, "group": row.group, "job": row.job, "row": row.row}
        if row.low is not None:
            one |= {"low": row.low, "high": row.high}
        facts.append(one)
    layouts = {name: [panel_facts(panel, bool(i)) for i, panel in enumerate(scatter.panels(rows, layout))] for name, layout in LAYOUTS.items()}
    return {"rows": facts, "layouts": layouts, "kinds": [name for name, _ in scatter.FAMILIES]}


def text(rows, refused, of_site=False):
    """`of_site`: links lead to the pages of the documentation site, in place of the documents."""
    head, *sections = re.split(r"^## ", page.text(rows, refused), flags=re.MULTILINE)
    title, lead = head.removeprefix("# ").split("\n", 1)
    named = dict(section.split("\n", 1) for section in sections)
    order = [*FIRST, *(name for name in named if name not in FIRST + LAST), *LAST]
    pictures = {"published/validation.svg": picture(scatter.svg, rows, True), "published/calibration.svg": picture(curve.svg, rows, False)}
    made = "\n".join(
        f'<section class="card" id="{anchor(name)}"><h2>{html.escape(name)}</h2>\n{blocks(named[name], pictures, of_site)}\n</section>' for name in order
    )
    words = {
        "title": html.escape(title),
        "style": STYLE.read_text(encoding="utf-8"),
        "head": blocks(lead, {}, of_site).replace("<p>", '<p class="headline">', 2),
        "contents": " ".join(f'<a href="#{anchor(name)}">{html.escape(name)}</a>' for name in order),
        "sections": made,
        "rows": json.dumps(row_facts(rows), ensure_ascii=True, separators=(",", ":")).replace("<", "\\u003c"),
    }
    return re.sub(r"@(\w+)@", lambda match: words[match[1]], TEMPLATE.read_text(encoding="utf-8"))
