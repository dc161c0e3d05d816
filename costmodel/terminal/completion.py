"""Completion scripts for bash and zsh, from the help of a program's commands."""

# What an option's value is -> what completes it; the patterns of files are globs.
GLOBS = {"SCENARIO": "*.toml", "PROFILE": "*.json", "PLAN": "*.jsonl", "SAMPLES": "*.jsonl",
         "RECORD": "*.jsonl"}
ANY_FILE = ("FILE", "TRACE", "PROGRAM")


def value_of(option):
    return option["value"].rstrip("…")


def choices(option):
    """The words of "blocking|buffered"; those in capitals stand for something else."""
    words = option["value"].split("|")
    return [word for word in words if word == word.lower()] if len(words) > 1 else []


# bash

BASH_HEAD = """\
# bash completion for {name}, made from its --help when it was built.

# Files of a pattern, and folders on the way to them.
_{name}_files() {{
  local pattern=$1 found
  compopt -o filenames 2>/dev/null
  while IFS= read -r found; do
    COMPREPLY+=("$found")
  done < <(compgen -d -- "$cur"; compgen -f -X "!$pattern" -- "$cur" | while IFS= read -r found; do
    [[ -d $found ]] || printf '%s\\n' "$found"
  done)
}}

_{name}_words() {{
  local found
  while IFS= read -r found; do
    COMPREPLY+=("$found")
  done < <(compgen -W "$*" -- "$cur")
}}

# Names of the policies in the scenario on the line.
_{name}_policy_names() {{
  local word policy
  for word in "${{COMP_WORDS[@]}}"; do
    [[ $word == *.toml && -r $word ]] || continue
    while IFS= read -r policy; do
      [[ $policy == "$cur"* ]] && COMPREPLY+=("$(printf '%q' "$policy")")
    done < <(awk '/^\\[/ {{ p = /^\\[\\[policy\\]\\]/ }}
      p && /^name *=/ {{ sub(/^name *= *"/, ""); sub(/".*/, ""); print }}' "$word")
  done
}}

_{name}() {{
  local cur=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD - 1]}} command={name} word
  COMPREPLY=()
  # The = of --option=value is a word of its own.
  if [[ $cur == = ]]; then
    cur=""
  elif [[ $previous == = ]]; then
    previous=${{COMP_WORDS[COMP_CWORD - 2]}}
  fi
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    case "$command $word" in
      {commands}) command="$command $word" ;;
    esac
  done
"""


def bash_value(name, option):
    """The call that completes an option's value; empty where nothing is known of it."""
    value = value_of(option)
    if choices(option):
        return f"_{name}_words {' '.join(choices(option))}"
    if value == "POLICY":
        return f"_{name}_policy_names"
    if value == "FOLDER":
        return f"compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -d -- \"$cur\")"
    if value in GLOBS:
        return f"_{name}_files '{GLOBS[value]}'"
    return f"_{name}_files '*'" if value in ANY_FILE else ":"


def bash_command(name, one):
    """The branch of one command: values of options, then options or arguments."""
    lines = [f"    '{one['command']}')", "      case $previous in"]
    flags = []
    argument = ":"
    for option in one["options"]:
        if option["positional"]:
            argument = bash_value(name, option)
            continue
        names = [f"--{option['name']}"] + ([f"-{option['letter']}"] if option["letter"] else [])
        flags.append(names[0])
        if option["takes_value"]:
            lines.append(f"        {'|'.join(names)}) {bash_value(name, option)}; return ;;")
    lines.append("      esac")
    lines.append(f"      if [[ $cur == -* ]]; then _{name}_words {' '.join(flags)}")
    lines.append(f"      else {argument}; fi ;;")
    return lines


def bash(name, helps):
    names = [command for command in helps if command != name]
    text = BASH_HEAD.format(name=name, commands="|".join(f"'{command}'" for command in names))
    lines = ["  case $command in"]
    for one in helps.values():
        if "commands" in one:
            words = " ".join(command["name"] for command in one["commands"])
            more = " --help" + (" --version" if one["command"] == name else "")
            lines.append(f"    '{one['command']}') _{name}_words {words}{more} ;;")
        else:
            lines += bash_command(name, one)
    lines += ["  esac", "}", f"complete -F _{name} {name}"]
    return text + "\n".join(lines) + "\n"


# zsh

def quoted(text):
    return "'" + text.replace("'", "'\\''") + "'"


def zsh_text(text):
    """A description inside [ ] or between colons of an argument's specification."""
    for special in "\\[]:":
        text = text.replace(special, "\\" + special)
    return text


def zsh_action(name, option):
    value = value_of(option)
    if choices(option):
        return f"({' '.join(choice.replace(':', chr(92) + ':') for choice in choices(option))})"
    if value == "POLICY":
        return f"_{name}_policy_names"
    if value == "FOLDER":
        return "_files -/"
    if value in GLOBS:
        return f"_files -g \"{GLOBS[value]}\""
    return "_files" if value in ANY_FILE else " "


def zsh_option(name, option):
    value = zsh_text(option["value"] or "value")
    description = zsh_text(option["description"])
    if option["positional"]:
        place = "*" if option["value"].endswith("…") else "1"
        return quoted(f"{place}:{value}:{zsh_action(name, option)}")
    tail = f"[{description}]"
    long = f"--{option['name']}"
    if option["takes_value"]:
        return quoted(f"*{long}={tail}:{value}:{zsh_action(name, option)}")
    if option["letter"]:
        both = f"-{option['letter']} {long}"
        return f"'({both})'{{-{option['letter']},{long}}}" + quoted(tail)
    return quoted(long + tail)


def zsh_function(command):
    return "_" + command.replace(" ", "_").replace("-", "_")


def zsh_set(one):
    """The function of a program or command that has commands of its own."""
    lines = [f"{zsh_function(one['command'])}() {{", "  local curcontext=$curcontext state line"]
    lines += ["  local -a commands=("]
    lines += [f"    {quoted(sub['name'] + ':' + sub['summary'])}" for sub in one["commands"]]
    lines += ["  )", "  _arguments -C '--help[show this help]' '1: :->command' '*:: :->rest'"]
    lines += ["  case $state in", f"    command) _describe '{one['command']} command' commands ;;"]
    lines += ["    rest)", "      case $words[1] in"]
    for sub in one["commands"]:
        lines.append(f"        {sub['name']}) {zsh_function(one['command'] + ' ' + sub['name'])} ;;")
    return lines + ["      esac ;;", "  esac", "}", ""]


def zsh(name, helps):
    lines = [f"#compdef {name}", f"# zsh completion for {name}, made from its --help when it was built.",
             "", "# Names of the policies in the scenario on the line.", f"_{name}_policy_names() {{",
             "  local word; local -a policies", "  for word in $words; do",
             "    [[ $word == *.toml && -r $word ]] || continue",
             "    policies+=(${(f)\"$(awk '/^\\[/ { p = /^\\[\\[policy\\]\\]/ }",
             "      p && /^name *=/ { sub(/^name *= *\"/, \"\"); sub(/\".*/, \"\"); print }' $word)\"})",
             "  done", "  compadd -a policies", "}", ""]
    for one in helps.values():
        if "commands" in one:
            lines += zsh_set(one)
            continue
        lines += [f"{zsh_function(one['command'])}() {{", "  _arguments \\"]
        specifications = [zsh_option(name, option) for option in one["options"]]
        lines += [f"    {specification} \\" for specification in specifications[:-1]]
        lines += [f"    {specifications[-1]}", "}", ""]
    lines.append(f"_{name} \"$@\"")
    return "\n".join(lines) + "\n"
