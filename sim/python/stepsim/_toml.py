"""Writes Python values as TOML, of which the standard library has only the reader."""

import json
import math
import os
import re

_BARE = re.compile(r"[A-Za-z0-9_-]+\Z")


def _key(name):
    if not isinstance(name, str):
        raise TypeError(f"a key of a scenario is a text, not {name!r}")
    return name if _BARE.match(name) else json.dumps(name, ensure_ascii=False)


def value_text(value):
    """Returns a value as it may stand behind `key =`; a dict becomes an inline table."""
    if hasattr(value, "tolist"):  # NumPy scalars and arrays, tensors.
        value = value.tolist()
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"a scenario takes finite numbers, not {value}")
        return repr(value)
    if isinstance(value, (str, os.PathLike)):
        # TOML's basic strings escape as JSON does, and DEL as well.
        return json.dumps(os.fspath(value), ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(value_text(item) for item in value) + "]"
    if isinstance(value, dict):
        items = (f"{_key(name)} = {value_text(item)}" for name, item in value.items())
        return "{ " + ", ".join(items) + " }" if value else "{}"
    raise TypeError(f"a scenario takes texts, numbers, lists and dicts, not {value!r}")


def document_text(document):
    """Returns a scenario as the text of a file: {"cluster": {"ranks": 4}, "policy": [{…}, …]}."""
    lines = []
    for name, table in document.items():
        tables = table if isinstance(table, (list, tuple)) else [table]
        brackets = ("[[", "]]") if tables is table else ("[", "]")
        for one in tables:
            if not isinstance(one, dict):
                raise TypeError(f"'{name}' of a scenario is a dict or a list of dicts, not {one!r}")
            lines.append(brackets[0] + _key(name) + brackets[1])
            lines += [f"{_key(key)} = {value_text(item)}" for key, item in one.items()]
            lines.append("")
    return "\n".join(lines)
