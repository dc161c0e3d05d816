"""Makes functions of the rows of the questions: their arguments, checks and words."""

import difflib
import inspect
import os
import re
from typing import Any, Callable, Dict, List, Optional, TypeVar

from . import _core

ROWS: Dict[str, Dict[str, Any]] = {row["name"]: row for row in _core.questions()}

# What a result has methods for, or what Scenario() and set() say.
_ELSEWHERE = ("csv", "html", "json", "markdown", "quiet", "report", "wide")
_TYPES = {"flag": bool, "text": str, "texts": List[str], "number": float, "whole number": int,
          "range": tuple, "whole numbers": List[int]}
_EXECUTOR = ("A concurrent.futures.Executor, as of a process pool or Dask, whose workers compute the "
             "points; None: threads.")
_PROGRESS = "True, False or a function (what, share); None: a bar where a person looks on."

R = TypeVar("R")


def _axes(over):
    """{key: values} as [(key, values)], where values are a text or a list."""
    def values_of(values):
        if isinstance(values, str):
            return values
        several = isinstance(values, (list, tuple, range)) or hasattr(values, "tolist")
        return list(values) if several else [values]

    return [(key, values_of(values)) for key, values in over.items()]


def _plain(value):
    """Paths become texts, arrays become lists."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _sentence(words):
    """Words of the help, in which options become arguments."""
    words = re.sub(r"--([a-z][a-z-]*)", lambda match: match[1].replace("-", "_"), words)
    return words[:1].upper() + words[1:].rstrip(".") + "."


class _Arguments:
    """The arguments of a function that asks a question: its options, by their names in Python."""

    def __init__(self, row, order, required, renamed, hidden):
        options = {one["name"].replace("-", "_"): one for one in row["options"]}
        names = {option: name for name, option in renamed.items()}
        hidden = (*_ELSEWHERE, *hidden, "scenario")
        own = [names.get(option, option) for option, one in options.items()
               if not one["shared"] and option not in hidden]
        self.positional = [*own, "progress"] if order is None else order.split()
        self.names = [one for one in self.positional if one != "progress"]
        self.names += [one for one in own if one not in self.names]
        self.rows = {one: options[renamed.get(one, one)] for one in self.names}
        self.extras = ["executor", "progress"] if row["points"] else ["progress"]
        self._required = required

    def _parameter(self, name):
        by_place = name in self.positional
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD if by_place else inspect.Parameter.KEYWORD_ONLY
        if name in self.extras:
            return inspect.Parameter(name, kind, default=None)
        row = self.rows[name]
        default = None if row["default"] in ("", []) else row["default"]
        annotation = _TYPES[row["type"]]
        if name in self._required:
            return inspect.Parameter(name, kind, annotation=annotation)
        annotation = Optional[annotation] if default is None else annotation
        return inspect.Parameter(name, kind, default=default, annotation=annotation)

    def signature(self, is_method, returned):
        own = [inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)] if is_method else []
        rest = [one for one in (*self.names, *self.extras) if one not in self.positional]
        parameters = [self._parameter(one) for one in (*self.positional, *rest)]
        return inspect.Signature([*own, *parameters], return_annotation=returned)

    def words(self, own):
        """What the documentation says of each; `own` where that is more than the row says."""
        more = {"KEY=VALUES": " {key: values}, where values are a list or a text; or \"key=values\".",
                "LOW..HIGH": " Or (low, high)."}
        result = {}
        for one, row in self.rows.items():
            value = f"{row['value']}: " if row["value"] else ""
            result[one] = own.get(one) or value + _sentence(row["words"]) + more.get(row["value"], "")
        return result


def _doc(row, words, returned):
    paragraph = row["usage"].split("\n\n")[1].strip()
    lines = [_sentence(row["summary"]), "", _sentence(paragraph), "", "Args:"]
    lines += [f"    {name}: {text}" for name, text in words.items()]
    lines += [f"    executor: {_EXECUTOR}"] if row["points"] else []
    lines += [f"    progress: {_PROGRESS}", "", f"Returns a {returned}."]
    return "\n".join(lines)


def _check_names(name, signature, keywords):
    known = [one for one in signature.parameters if one != "self"]
    for keyword in keywords:
        if keyword not in known:
            near = difflib.get_close_matches(keyword, known, 1)
            hint = f"did you mean '{near[0]}'?" if near else f"it takes {', '.join(known)}"
            raise TypeError(f"{name}() got an unexpected keyword argument '{keyword}'; {hint}")


def _value(convert, value):
    return _plain(convert(value) if value is not None and convert else value)


def made(
    question: str,
    kind: Callable[[Any], R],
    ask: Callable[..., Any],
    order: Optional[str] = None,
    *,
    name: str = "",
    required: str = "",
    renamed: Dict[str, str] = {},
    fixed: Dict[str, Any] = {},
    hidden: str = "",
    convert: Dict[str, Callable[[Any], Any]] = {},
    words: Dict[str, str] = {},
    method: bool = False,
) -> Callable[..., R]:
    """Returns a function that asks a question.

    Args:
        kind: Makes the result of the _core.Answer.
        ask: Called as ask([self,] question, options, progress=…); with executor=… where a question
            has points, with axes=… where keys are given with lists of values.
        order: The arguments that may be given by position; all other options of the row follow as
            keywords. None: all, in the order of the row.
        required: Arguments without a default.
        renamed: {argument: option} where they differ by more than dashes.
        fixed: {option: value} that the function always gives.
        hidden: Options that the function has no argument for.
        convert: {argument: function} of values that are not taken as they are.
        words: {argument: text} where the documentation says more than the row.
    """
    name = name or question
    row = ROWS[question]
    arguments = _Arguments(row, order, required.split(), renamed, [*hidden.split(), *fixed])
    returned = kind if inspect.isclass(kind) else str
    signature = arguments.signature(method, returned)

    def function(*given, **keywords):
        _check_names(name, signature, keywords)
        bound = signature.bind(*given, **keywords).arguments
        scenario = [bound.pop("self")] if method else []
        extras = {one: bound.pop(one, None) for one in arguments.extras}
        values = dict(fixed)
        for one, value in bound.items():
            of = arguments.rows[one]
            if of["value"] == "KEY=VALUES" and isinstance(value, dict):
                extras["axes"] = _axes(value)
            else:
                values[of["name"]] = _value(convert.get(one), value)
        return kind(ask(*scenario, question, values, **extras))

    function.__name__, function.__qualname__ = name, f"Scenario.{name}" if method else name
    function.__doc__ = _doc(row, arguments.words(words), f"results.{kind.__name__}" if inspect.isclass(kind) else "text")
    function.__signature__ = signature  # type: ignore[attr-defined]
    return function
