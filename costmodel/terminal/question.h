#pragma once

#include <any>
#include <functional>
#include <initializer_list>
#include <map>
#include <string>
#include <typeindex>
#include <utility>
#include <vector>

#include "costmodel/terminal/answer.h"
#include "costmodel/terminal/option_row.h"

namespace stepsim {

/// What a command is asked beside its own options.
struct CommandRequest {
  std::string command;  ///< "stepsim compare"
  Outputs outputs;
  std::vector<GivenOption> given;  ///< All options, in the order in which they were given.

  /// The words that ask it, without those of the options with these names.
  [[nodiscard]] std::vector<std::string> words_without(const std::vector<std::string>& names) const;
  /// "stepsim compare SCENARIO …", quoted for a shell, without the options with these names.
  [[nodiscard]] std::string command_line(const std::vector<std::string>& names = {}) const;
  /// Raises InputError: "COMMAND: error: MESSAGE; see: COMMAND --help".
  [[noreturn]] void fail(const std::string& message) const { fail_command(command, message); }
};

/// The structs whose members the options of a command set: its own, and those that several commands
/// share, which live elsewhere.
struct OptionStructs {
  std::any own;
  std::map<std::type_index, void*> shared;

  template <typename Struct>
  void share(Struct& options) {
    shared[typeid(Struct)] = &options;
  }
  template <typename Struct>
  [[nodiscard]] Struct& get() {
    const auto found = shared.find(typeid(Struct));
    return found == shared.end() ? std::any_cast<Struct&>(own)
                                 : *static_cast<Struct*>(found->second);
  }
};

/// Returns a row that sets a member of one of the OptionStructs. `words`: as Option::description.
template <typename Struct, typename Value>
[[nodiscard]] OptionRow option(std::string name, Value Struct::*member, std::string words) {
  OptionRow row;
  row.name = std::move(name);
  row.words = std::move(words);
  row.variable = [member](void* structs) -> OptionVariable {
    return &(static_cast<OptionStructs*>(structs)->get<Struct>().*member);
  };
  return row;
}

/// Returns the groups and rows as one table.
[[nodiscard]] std::vector<OptionRow> option_table(
    std::initializer_list<std::vector<OptionRow>> groups);

/// The own options of a question that has none.
struct NoOptions {};

/// One question: a command of a program. Its help, man page and completion are made of this row.
template <typename Request>
struct QuestionRow {
  std::string name;
  std::string summary;
  std::string usage;  ///< As CommandHelp::usage: synopsis, paragraphs, examples.
  std::vector<OptionRow> options;
  std::function<std::any()> make_own;  ///< Its own options with their defaults.
  std::function<Answer(const Request& request, const std::any& own)> ask;
};

/// Returns the row of a question; its function takes the struct that its options set.
template <typename Request, typename Options>
[[nodiscard]] QuestionRow<Request> question_row(std::string name,
                                                std::string summary,
                                                std::string usage,
                                                std::vector<OptionRow> options,
                                                Answer (*ask)(const Request& request,
                                                              const Options& options)) {
  return {std::move(name),
          std::move(summary),
          std::move(usage),
          std::move(options),
          [] { return std::any(Options()); },
          [ask](const Request& request, const std::any& own) {
            return ask(request, std::any_cast<const Options&>(own));
          }};
}

/// Reads the words of the command line of `request.command` into the structs and the request. A
/// file that goes to standard output makes it quiet. Returns false when they ask for help, after
/// printing it. Raises InputError: an option is wrong.
[[nodiscard]] bool read_words(const std::vector<std::string>& words,
                              const std::string& usage,
                              const std::vector<OptionRow>& rows,
                              OptionStructs& structs,
                              CommandRequest& request);

}  // namespace stepsim
