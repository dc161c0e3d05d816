#pragma once

#include <set>
#include <span>
#include <string>
#include <vector>

namespace stepsim {

/// An option as a command was given it.
struct GivenOption {
  std::string name;                 ///< Without dashes; of an argument its option's name.
  std::vector<std::string> values;  ///< As texts.
  std::vector<std::string> words;   ///< Of the command line: the name, where it was given, too.
};

/// Which of a command's options have files as values.
struct FileOptions {
  std::set<std::string> read;     ///< All whose values are files.
  std::set<std::string> written;  ///< Those that the command makes or replaces.
  std::set<std::string> inputs;   ///< Those that are given without a name.
};

/// Raises InputError: "COMMAND: error: MESSAGE; see: COMMAND --help". `command`: "stepsim compare".
[[noreturn]] void fail_command(const std::string& command, const std::string& message);

/// Returns the words of all options but those with these names.
[[nodiscard]] std::vector<std::string> words_without(std::span<const GivenOption> given,
                                                     std::span<const std::string> names);

/// Raises InputError where a file to write is also another option's file.
void keep_files_apart(const std::string& command,
                      std::span<const GivenOption> given,
                      const FileOptions& files);

}  // namespace stepsim
