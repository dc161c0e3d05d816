#pragma once

#include <functional>
#include <string>
#include <vector>

#include "costmodel/io/json_file.h"
#include "costmodel/terminal/command_parser.h"
#include "sim/scenario/scenario.h"

namespace stepsim {

/// What most commands take.
struct CommonOptions {
  std::string scenario;          ///< A file; a shipped scenario's name is already resolved.
  std::vector<std::string> set;  ///< "key=value", --seed, --steps and --profile included.
  std::string json;              ///< File, "-" or empty.
  std::string csv;
  std::string html;  ///< For commands that make a page.
  bool quiet = false;
};

/// The options of a command of stepsim.
class OptionParser : public CommandParser {
 public:
  OptionParser(std::string command, std::string usage);

  /// --set, --seed, --steps, --profile, --json, --csv, --quiet, and the scenario as first argument.
  void add_common();
  /// --html
  void add_html();
  /// --json, --csv, --html and --quiet alone. Raises InputError: two go to standard output;
  /// EnvironmentFault: a page is asked for and this build has none.
  [[nodiscard]] CommonOptions output_options() const;
  /// Raises InputError when the scenario is missing.
  [[nodiscard]] CommonOptions common() const;
};

/// Scenario of the common options, overrides applied.
[[nodiscard]] Scenario load_scenario(const CommonOptions& options);

/// Prints to standard output unless quiet or a machine format goes there.
void print_text(const CommonOptions& options, const std::string& text);

/// Prints the text and writes JSON and CSV where they are asked for; else they are not made.
void write_result(const CommonOptions& options,
                  const std::string& text,
                  const std::function<Json()>& json,
                  const std::function<std::string()>& csv);

}  // namespace stepsim
