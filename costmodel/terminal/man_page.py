"""Man pages (man(7) macros), from the help of a program's commands."""

import datetime
import os

# Of every command, as costmodel/terminal/commands.h has them.
EXIT_STATUS = {
    "0": "Done.",
    "1": "The answer is no: out of memory, a prediction outside its bound, no solution.",
    "2": "Bad input.",
    "3": "A fault of the machine, such as a full disk.",
    "130": "Stopped by Ctrl-C.",
}


def escaped(text):
    """Text as roff prints it; nothing in it is a request or an escape."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    text = "".join(c if ord(c) < 128 else f"\\[u{ord(c):04X}]" for c in text)
    return "\\&" + text if text[:1] in (".", "'") else text


def date():
    """Of the build, or what makes builds reproducible: SOURCE_DATE_EPOCH."""
    seconds = os.environ.get("SOURCE_DATE_EPOCH")
    now = datetime.timezone.utc
    day = (datetime.datetime.fromtimestamp(int(seconds), now) if seconds
           else datetime.datetime.now(now))
    return day.strftime("%Y-%m-%d")


def sections(usage):
    """(usage lines, paragraphs as lists of lines, example lines) of a command's usage text."""
    blocks = [block.splitlines() for block in usage.strip("\n").split("\n\n")]
    synopsis = [line.removeprefix("usage:").strip() for line in blocks[0]]
    examples = [line for block in blocks[1:] if block[0].startswith("example") for line in block[1:]]
    return synopsis, [b for b in blocks[1:] if not b[0].startswith("example")], examples


def literal(lines):
    """Lines as they are, in an example."""
    return [".PP", ".EX", *[escaped(line) for line in lines], ".EE"]


def paragraph(lines):
    """Sentences are filled anew; indented lines stay."""
    result = []
    for i, line in enumerate(lines):
        if line.startswith(" "):
            if i == 0 or not lines[i - 1].startswith(" "):
                result += [".PP", ".EX"]
            result.append(escaped(line))
            if i + 1 == len(lines) or not lines[i + 1].startswith(" "):
                result.append(".EE")
        else:
            if i == 0 or lines[i - 1].startswith(" "):
                result.append(".PP")
            result.append(escaped(line))
    return result


def option_name(option):
    value = (option["value"] or "VALUE") + ("|-" if option["or_dash"] else "")
    if option["positional"]:
        return f"\\fI{escaped(value)}\\fR"
    letter = f"\\fB\\-{option['letter']}\\fR, " if option["letter"] else ""
    name = escaped("--" + option["name"])
    return f"{letter}\\fB{name}\\fR" + (f" \\fI{escaped(value)}\\fR" if option["takes_value"] else "")


def option_lines(one):
    lines = []
    for option in sorted(one["options"], key=lambda o: (not o["positional"], o["shared"])):
        default = f" (default: {option['default']})" if option["default"] else ""
        lines += [".TP", option_name(option), escaped(option["description"] + default)]
    return lines


def exit_status():
    lines = [".SH EXIT STATUS"]
    for number, meaning in EXIT_STATUS.items():
        lines += [".TP", number, escaped(meaning)]
    return lines


def of_command(one):
    synopsis, paragraphs, examples = sections(one["usage"])
    lines = [".SH SYNOPSIS"]
    for i, line in enumerate(synopsis):
        lines += ([".br"] if i else []) + [escaped(line)]
    lines.append(".SH DESCRIPTION")
    for block in paragraphs:
        lines += paragraph(block)
    lines += [".SH OPTIONS", *option_lines(one), *exit_status()]
    return lines + ([".SH EXAMPLES", *literal(examples)] if examples else [])


def of_set(one):
    lines = [".SH SYNOPSIS", f"\\fB{escaped(one['command'])}\\fR \\fICOMMAND\\fR [options]"]
    lines += [".SH DESCRIPTION", escaped(one["purpose"]), ".SH COMMANDS"]
    for command in one["commands"]:
        lines += [".TP", f"\\fB{escaped(command['name'])}\\fR", escaped(command["summary"])]
    lines += [*exit_status(), ".SH NOTES"]
    for block in one["closing"].strip("\n").split("\n\n"):
        if not block.startswith("Exit status:"):  # It has a section of its own.
            lines += paragraph(block.splitlines())
    return lines


def summary(one, helps):
    """The line of the overview that names the command."""
    for other in helps.values():
        for command in other.get("commands", []):
            if f"{other['command']} {command['name']}" == one["command"]:
                return command["summary"]
    return one["purpose"].rstrip(".")


def see_also(one, helps):
    family = [name for name in helps if name != one["command"]
              and (name.startswith(one["command"] + " ") or one["command"].startswith(name + " "))]
    pages = [f"\\fB{escaped(name.replace(' ', '-'))}\\fR(1)" for name in sorted(family)]
    return [".SH SEE ALSO", *[page + "," for page in pages[:-1]], pages[-1]]


def page(program, one, helps):
    name = one["command"].replace(" ", "-")
    version = helps[program]["version"]
    body = of_set(one) if "commands" in one else of_command(one)
    lines = [f".TH {name.upper()} 1 {date()} \"{program} {version}\"", ".SH NAME",
             f"{escaped(name)} \\- {escaped(summary(one, helps))}", *body, *see_also(one, helps)]
    kept = [line for i, line in enumerate(lines)
            if line != ".PP" or not lines[i - 1].startswith(".SH")]
    return "\n".join(kept) + "\n"
