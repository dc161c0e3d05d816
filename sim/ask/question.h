#pragma once

#include <string>
#include <utility>
#include <vector>

#include "costmodel/terminal/question.h"
#include "sim/ask/request.h"

namespace stepsim {

/// Who else can compute the points of a question.
enum class SharedPoints {
  None,
  Processes,          ///< Several processes together.
  ProcessesAndShards  ///< These; and several commands a shard each, which `stepsim merge` joins.
};

/// One question: a command of the program, its man page and completion, a method of the Python
/// package. All of them are made of this row.
struct Question : QuestionRow<Request> {
  SharedPoints points = SharedPoints::None;
};

/// Values by the names of options, in the order in which they are given.
using OptionValues = std::vector<std::pair<std::string, OptionValue>>;

// Groups of options that several questions have.

/// The scenario, --set, --seed, --steps, --profile, --memory-limit, and those of output_options().
[[nodiscard]] std::vector<OptionRow> scenario_options();
/// --json, --csv, --quiet
[[nodiscard]] std::vector<OptionRow> output_options();
/// --html
[[nodiscard]] std::vector<OptionRow> page_options();
/// --threads, --resume, --shard
[[nodiscard]] std::vector<OptionRow> point_options();

/// Returns the row of a question; its function takes the struct that its options set.
template <typename Options>
[[nodiscard]] Question question(std::string name,
                                std::string summary,
                                std::string usage,
                                std::vector<OptionRow> options,
                                Answer (*ask)(const Request& request, const Options& options)) {
  return {
      question_row(std::move(name), std::move(summary), std::move(usage), std::move(options), ask)};
}

/// Returns the structs that the options of a question set: its own with their defaults, and those
/// of the request, which must outlive them.
[[nodiscard]] OptionStructs option_structs(const Question& question, Request& request);

/// Asks with the words of a command line. With --help it prints the help and answers nothing.
/// Raises InputError: an option is wrong; else as the question does.
[[nodiscard]] Answer ask(const Question& question,
                         const std::vector<std::string>& words,
                         Request request = {});
/// Asks with values. Raises as the above.
[[nodiscard]] Answer ask(const Question& question, const OptionValues& values, Request request);

}  // namespace stepsim
