"""Which sources name something without including a header that declares it, by reading alone.

Names of ours are looked up in our headers; of libraries, fmt's and JSON values are looked at.

It takes two seconds for all of them, and is only a suspicion: a name can be declared in more ways
than are read here. Whoever wants to know parses the suspects. It counts on the layout that
.clang-format makes: what a header declares for others begins in the first column.
"""

import collections
import functools
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ("costmodel", "sim", "calibrate", "tests")
INCLUDE = re.compile(r'^\s*#include\s+"([^"]+)"', re.MULTILINE)
NO_CODE = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"', re.DOTALL)

# What a header declares for others: types, constants, functions.
FOR_OTHERS = [
    re.compile(r"^(?:struct|class|enum class|enum|using|concept)\s+(\w+)\b(?!;)", re.MULTILINE),
    re.compile(r"^(?:inline )?constexpr .*?\b(k[A-Z]\w*)", re.MULTILINE),
    re.compile(r"^(?!return|using|#|typedef)[\w\[\]:<>,&* ]*[\w>&*\]] ?\b(\w+)\(", re.MULTILINE),
]
# What may be a declaration anywhere, of a member or a variable, too.
ANYWHERE = [
    re.compile(r"\b(?:struct|class|enum class|enum|using|typename|concept)\s+(\w+)"),
    re.compile(
        r"(?:\b(?!return\b|else\b|throw\b|case\b|new\b|not\b|and\b|or\b)\w+|(?<=\S)[>\]])[&*]{0,2} (\w+)"
        r"\s*[({=;,)\[:]"
    ),
]
LIBRARY_INCLUDE = re.compile(r"^\s*#include\s+<([^>]+)>", re.MULTILINE)
JSON_VALUE = re.compile(r'\bJson[({:]|\[""\]|\.dump\(|\.contains\(|\.get<')
# Types, constants and calls; no members of something else.
USED = re.compile(r"(?<![\w.])(?<!->)(?:(?<!::)|(?<=stepsim::))([A-Z]\w*|k[A-Z]\w*|\w+(?=\())")


@functools.cache
def text_of(name):
    return (ROOT / name).read_text(encoding="utf-8")


@functools.cache
def code_of(name):
    """Without comments and strings."""
    return NO_CODE.sub('""', text_of(name))


@functools.cache
def included_by(name):
    """The file and all of ours that it includes, directly or not."""
    seen, to_read = {name}, [name]
    while to_read:
        for include in INCLUDE.findall(text_of(to_read.pop())):
            if include not in seen and (ROOT / include).exists():
                seen.add(include)
                to_read.append(include)
    return seen


@functools.cache
def declared(name, how):
    return {one for expression in how for one in expression.findall(code_of(name))}


def missing_libraries(name, seen):
    """Libraries whose names a source uses and none of the headers in `seen` seems to declare."""
    included = {one for header in seen for one in LIBRARY_INCLUDE.findall(text_of(header))}
    missing = set()
    if "fmt::" in code_of(name) and not any(one.startswith("fmt/") for one in included):
        missing.add("fmt")
    only_named = "nlohmann/json_fwd.hpp" in included and "nlohmann/json.hpp" not in included
    # Maps have such members, too: only who names the type has a JSON value.
    if only_named and "Json" in code_of(name) and JSON_VALUE.search(code_of(name)):
        missing.add("nlohmann")
    return missing


def missing_names():
    """Returns {source: names that it uses and none of its headers seems to declare}."""
    files = sorted(
        path.relative_to(ROOT).as_posix()
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".h", ".cuh", ".cpp")
    )
    headers = collections.defaultdict(set)
    for name in files:
        if not name.endswith(".cpp"):
            for one in declared(name, tuple(FOR_OTHERS)):
                headers[one].add(name)
    found = {}
    for name in files:
        if name.endswith(".cpp"):
            seen = included_by(name)
            missing = {
                one for one in USED.findall(code_of(name)) if one in headers and not headers[one] & seen
            }
            for header in seen if missing else ():
                missing -= declared(header, tuple(ANYWHERE))
            missing |= missing_libraries(name, seen)
            if missing:
                found[name] = missing
    return found
