#pragma once

#include <any>
#include <functional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "sim/ask/answer.h"
#include "sim/ask/request.h"

namespace stepsim {

/// What a question is asked with: the request, and the struct of its own options.
struct AskedOptions {
  Request request;
  std::any own;
};

/// Who else can compute the points of a question.
enum class SharedPoints {
  None,
  Processes,          ///< Several processes together.
  ProcessesAndShards  ///< These; and several commands a shard each, which `stepsim merge` joins.
};

/// One question: a command of the program, its man page and completion, a method of the Python
/// package. All of them are made of this row.
struct Question {
  std::string name;
  std::string summary;
  std::string usage;  ///< As CommandHelp::usage: synopsis, paragraphs, examples.
  std::vector<OptionRow> options;
  std::function<std::any()> make_own;  ///< Its own options with their defaults.
  std::function<Answer(const AskedOptions& options)> ask;
  SharedPoints points = SharedPoints::None;
};

/// The own options of a question that has none.
struct NoOptions {};

/// Values by the names of options, in the order in which they are given.
using OptionValues = std::vector<std::pair<std::string, OptionValue>>;

/// Returns a row that sets a member of ScenarioOptions, Outputs, PointOptions or of the question's
/// own struct. `words`: as Option::description.
template <typename Struct, typename Value>
[[nodiscard]] OptionRow option(std::string name, Value Struct::*member, std::string words) {
  OptionRow row;
  row.name = std::move(name);
  row.words = std::move(words);
  row.variable = [member](void* options) -> OptionVariable {
    auto& asked = *static_cast<AskedOptions*>(options);
    if constexpr (std::is_same_v<Struct, ScenarioOptions>) {
      return &(asked.request.scenario.*member);
    } else if constexpr (std::is_same_v<Struct, Outputs>) {
      return &(asked.request.outputs.*member);
    } else if constexpr (std::is_same_v<Struct, PointOptions>) {
      return &(asked.request.points.*member);
    } else {
      return &(std::any_cast<Struct&>(asked.own).*member);
    }
  };
  return row;
}

// Groups of options that several questions have.

/// The scenario, --set, --seed, --steps, --profile, --memory-limit, and those of output_options().
[[nodiscard]] std::vector<OptionRow> scenario_options();
/// --json, --csv, --quiet
[[nodiscard]] std::vector<OptionRow> output_options();
/// --html
[[nodiscard]] std::vector<OptionRow> page_options();
/// --threads, --resume, --shard
[[nodiscard]] std::vector<OptionRow> point_options();

/// Returns the groups and rows as one table.
[[nodiscard]] std::vector<OptionRow> option_table(
    std::initializer_list<std::vector<OptionRow>> groups);

/// Returns the row of a question; its function takes the struct that its options set.
template <typename Options>
[[nodiscard]] Question question(std::string name,
                                std::string summary,
                                std::string usage,
                                std::vector<OptionRow> options,
                                Answer (*ask)(const Request& request, const Options& options)) {
  return {std::move(name),
          std::move(summary),
          std::move(usage),
          std::move(options),
          [] { return std::any(Options()); },
          [ask](const AskedOptions& asked) {
            return ask(asked.request, std::any_cast<const Options&>(asked.own));
          }};
}

/// Asks with the words of a command line. With --help it prints the help and answers nothing.
/// Raises InputError: an option is wrong; else as the question does.
[[nodiscard]] Answer ask(const Question& question,
                         const std::vector<std::string>& words,
                         Request request = {});
/// Asks with values. Raises as the above.
[[nodiscard]] Answer ask(const Question& question, const OptionValues& values, Request request);

}  // namespace stepsim
