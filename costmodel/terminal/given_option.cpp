#include "costmodel/terminal/given_option.h"

#include <algorithm>

#include <fmt/format.h>

#include "costmodel/base/input_error.h"
#include "costmodel/base/same_file.h"

namespace stepsim {

void fail_command(const std::string& command, const std::string& message) {
  const std::string joint = message.ends_with('?') ? " see: " : "; see: ";
  throw InputError(SourcePlace{command}, message + joint + command + " --help");
}

std::vector<std::string> words_without(std::span<const GivenOption> given,
                                       std::span<const std::string> names) {
  std::vector<std::string> words;
  for (const GivenOption& option : given) {
    if (std::ranges::find(names, option.name) == names.end()) {
      words.insert(words.end(), option.words.begin(), option.words.end());
    }
  }
  return words;
}

void keep_files_apart(const std::string& command,
                      std::span<const GivenOption> given,
                      const FileOptions& files) {
  const auto check = [&](const GivenOption& output, const std::string& file) {
    for (const GivenOption& other : given) {
      if (!files.read.contains(other.name)) {
        continue;
      }
      for (const std::string& taken : other.values) {
        if (&taken != &file && is_same_file(file, taken)) {
          fail_command(
              command,
              fmt::format(
                  "--{} {} would overwrite {}; give it a name of its own",
                  output.name,
                  printable(file),
                  files.inputs.contains(other.name) ? "an input" : "the file of --" + other.name));
        }
      }
    }
  };
  for (const GivenOption& output : given) {
    if (files.written.contains(output.name)) {
      for (const std::string& file : output.values) {
        if (file != "-") {
          check(output, file);
        }
      }
    }
  }
}

}  // namespace stepsim
