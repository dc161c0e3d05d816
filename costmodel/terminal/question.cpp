#include "costmodel/terminal/question.h"

#include <algorithm>
#include <iterator>

#include "costmodel/base/shell_word.h"
#include "costmodel/terminal/command_parser.h"

namespace stepsim {

namespace {

/// Whether a file that the command writes is given as "-".
bool takes_standard_output(const std::vector<OptionRow>& rows, const CommandParser& parser) {
  return std::ranges::any_of(rows, [&](const OptionRow& row) {
    const std::string name = row.long_name();
    return row.writes && option_help(name, row.words).or_dash && parser.text(name) == "-";
  });
}

}  // namespace

std::vector<std::string> CommandRequest::words_without(
    const std::vector<std::string>& names) const {
  return stepsim::words_without(given, names);
}

std::string CommandRequest::command_line(const std::vector<std::string>& names) const {
  std::string line = command;
  for (const std::string& word : words_without(names)) {
    line += " " + shell_word(word);
  }
  return line;
}

std::vector<OptionRow> option_table(std::initializer_list<std::vector<OptionRow>> groups) {
  std::vector<OptionRow> table;
  for (const std::vector<OptionRow>& group : groups) {
    std::ranges::copy(group, std::back_inserter(table));
  }
  return table;
}

bool read_words(const std::vector<std::string>& words,
                const std::string& usage,
                const std::vector<OptionRow>& rows,
                OptionStructs& structs,
                CommandRequest& request) {
  CommandParser parser(request.command, usage);
  add_rows(rows, &structs, parser);
  if (!parser.parse(words)) {
    return false;
  }
  take_given(rows, parser, &structs);
  request.given = parser.given();
  request.outputs.quiet = request.outputs.quiet || takes_standard_output(rows, parser);
  return true;
}

}  // namespace stepsim
