#pragma once

#include <optional>
#include <string>
#include <vector>

#include "costmodel/terminal/command_parser.h"
#include "sim/cli/answer.h"
#include "sim/predict/memory_need.h"
#include "sim/scenario/scenario.h"

namespace stepsim {

/// What most commands take.
struct CommonOptions {
  std::string scenario;  ///< A file; a shipped scenario's name is already resolved.
  std::optional<std::string> scenario_text;  ///< Request::scenario_text.
  std::vector<std::string> set;  ///< "key=value", --seed, --steps and --profile included.
  Outputs outputs;
};

/// The options of a command of stepsim.
class OptionParser : public CommandParser {
 public:
  OptionParser(std::string command, std::string usage, const Request& request);

  /// Parses the request's arguments; see CommandParser::parse().
  [[nodiscard]] bool parse() { return CommandParser::parse(request_.arguments); }

  /// --set, --seed, --steps, --profile, --json, --csv, --quiet, and the scenario as first argument.
  void add_common();
  /// --json, --csv and --quiet
  void add_outputs();
  /// --html
  void add_html();
  /// --json, --csv, --html and --quiet alone. Raises InputError: two go to standard output;
  /// EnvironmentFault: a page is asked for and this build has none.
  [[nodiscard]] Outputs outputs() const;
  /// What the forms that the answer may be asked for need of single steps: the text needs nothing.
  [[nodiscard]] KeptRows rows() const;
  /// What the command asks, whatever it writes and however points are computed.
  [[nodiscard]] std::vector<std::string> question() const;
  [[nodiscard]] const Request& request() const { return request_; }
  /// Raises InputError when the scenario is missing.
  [[nodiscard]] CommonOptions common() const;

 private:
  Request request_;
};

/// Scenario of the common options, overrides applied.
[[nodiscard]] Scenario load_scenario(const CommonOptions& options);

}  // namespace stepsim
