#pragma once

#include <string>
#include <vector>

#include <boost/program_options.hpp>

#include "costmodel/profile.h"
#include "sim/scenario.h"

namespace stepsim {

/// What most commands take.
struct CommonOptions {
  std::string scenario;
  std::vector<std::string> set;  ///< "key=value", --seed, --steps and --profile included.
  std::string json;              ///< File, "-" or empty.
  std::string csv;
  std::string html;  ///< For commands that make a page.
  bool quiet = false;
};

/// A command's options with its usage and examples: `usage` is printed by --help as it is.
class OptionParser {
 public:
  OptionParser(std::string command, std::string usage);

  /// --set, --seed, --steps, --profile, --json, --csv, --quiet, and the scenario as first argument.
  void add_common();
  /// --html
  void add_html();
  boost::program_options::options_description_easy_init add() { return options_.add_options(); }
  /// Names of arguments without a dash, in order; the last one may repeat.
  void positional(const std::string& name, int count);

  /// False when --help was asked for (and printed). Raises InputError for a wrong option.
  [[nodiscard]] bool parse(const std::vector<std::string>& arguments);

  [[nodiscard]] bool has(const std::string& name) const { return values_.count(name) > 0; }
  template <typename T>
  [[nodiscard]] T get(const std::string& name) const {
    return values_[name].as<T>();
  }
  /// --json, --csv, --html and --quiet alone. Raises InputError: two go to standard output;
  /// EnvironmentFault: a page is asked for and this build has none.
  [[nodiscard]] CommonOptions output_options() const;
  /// Raises InputError when the scenario is missing.
  [[nodiscard]] CommonOptions common() const;

 private:
  std::string command_;
  std::string usage_;
  boost::program_options::options_description options_;
  boost::program_options::positional_options_description positional_;
  boost::program_options::variables_map values_;
};

/// Scenario of the common options, overrides applied.
[[nodiscard]] Scenario load_scenario(const CommonOptions& options);

/// Prints to standard output unless quiet or a machine format goes there.
void print_text(const CommonOptions& options, const std::string& text);

}  // namespace stepsim
