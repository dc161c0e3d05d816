"""Joins the report page's template, style, d3 and scripts into one C++ source.

usage: embed.py OUTPUT TEMPLATE STYLE SCRIPT...
The template holds /*STYLE*/, /*SCRIPT*/ (the scripts as listed, d3 first) and, in the element
stepsim-data, DATA. A page is the text before DATA, then the data, then the text after DATA.
"""

import re
import sys

DATA = re.compile(r'(<script type="application/json" id="stepsim-data">)\s*DATA\s*(</script>)')
# Compilers need not accept literals of more than 65,536 characters.
CHUNK = 12_000
DELIMITER = "page"


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def replace_once(text, marker, replacement):
    if text.count(marker) != 1:
        sys.exit(f"embed.py: the template must hold {marker} once")
    return text.replace(marker, replacement)


def inside_element(path, element):
    """Returns a file's text; it must not end the element that it is put into, or open a comment."""
    text = read(path)
    for end in (f"</{element}", "<!--"):
        if end in text.lower():
            sys.exit(f"embed.py: {path} holds {end}, which HTML would not read as part of it")
    return text.strip() + "\n"


def joined(template, style, scripts):
    """Returns the text of the page before its data and after it."""
    page = read(template)
    page = replace_once(page, "/*STYLE*/", inside_element(style, "style"))
    script = "".join(inside_element(path, "script") for path in scripts)
    page = replace_once(page, "/*SCRIPT*/", script)
    parts = DATA.split(page)
    if len(parts) != 4:
        sys.exit("embed.py: the template must hold the element stepsim-data with DATA once")
    before, opening, closing, after = parts
    return before + opening, closing + after


def literals(text):
    if f'){DELIMITER}"' in text:
        sys.exit(f'embed.py: the page holds ){DELIMITER}", which ends a literal')
    chunks = [text[at : at + CHUNK] for at in range(0, len(text), CHUNK)]
    return "".join(f'    R"{DELIMITER}({chunk}){DELIMITER}"sv,\n' for chunk in chunks)


def main():
    output, template, style, *scripts = sys.argv[1:]
    before, after = joined(template, style, scripts)
    with open(output, "w", encoding="utf-8", newline="\n") as file:
        file.write(
            "// Made by sim/report/html/embed.py.\n"
            '#include "sim/report/html/page_source.h"\n\n'
            "namespace stepsim {\n\nnamespace {\n\n"
            "using namespace std::literals;  // Clang does not count so many characters itself.\n\n"
            f"constexpr std::string_view kBefore[] = {{\n{literals(before)}}};\n\n"
            f"constexpr std::string_view kAfter[] = {{\n{literals(after)}}};\n\n"
            "constexpr PageSource kSource{kBefore, kAfter};\n\n"
            "}  // namespace\n\n"
            "const PageSource* page_source() {\n  return &kSource;\n}\n\n"
            "}  // namespace stepsim\n"
        )


if __name__ == "__main__":
    main()
