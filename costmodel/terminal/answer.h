#pragma once

#include <functional>
#include <string>
#include <vector>

#include "costmodel/io/atomic_file.h"
#include "costmodel/io/json_file.h"
#include "costmodel/terminal/commands.h"
#include "costmodel/terminal/screen.h"

namespace stepsim {

/// Where a program writes an answer: files, "-" for standard output, or empty.
struct Outputs {
  std::string json;
  std::string csv;
  std::string html;
  std::string markdown;
  bool quiet = false;  ///< True: the text is not printed.
  bool wide = false;   ///< True: tables have all their columns.
  /// True: the text is laid out as for a file, even where standard output seems to be a terminal:
  /// mpirun gives its processes one, whatever its own output is.
  bool as_file = false;
};

/// What a command found. The program writes it where the options say; the Python package hands it
/// out. Each form is made when it is asked for; one that is empty does not exist.
struct Answer {
  int status = kDone;
  Outputs outputs;
  std::vector<std::string> warnings;  ///< For standard error.
  std::function<std::string(const Screen& screen)> text;
  std::string aside;  ///< For standard error, after the text: what each run says differently.
  std::function<Json()> json;
  /// Writes json() with what it has marks of, since that is too large for the memory as JSON;
  /// empty: json() is whole.
  std::function<void(const Json& json, const TextSink& sink)> streamed;
  std::function<std::string()> csv;
  std::function<std::string()> html;  ///< Raises EnvironmentFault in a build without pages.
  std::function<std::string()> markdown;
  std::vector<std::string> errors;  ///< Whole messages for standard error, after the text.
  /// What else the command finds, one after the other, once the above is written: the findings so
  /// far are there, whatever these raise.
  std::vector<std::function<Answer()>> then;

  /// Writes the JSON as it stands in a file. Names come from files of others: bytes that are not
  /// UTF-8 are replaced.
  void write_json(const TextSink& out) const;
  [[nodiscard]] std::string json_text() const;
};

/// Prints and writes the answer of `program` as its outputs say. Returns its status, or that of the
/// last answer that followed it.
int write_answer(const std::string& program, const Answer& answer);

}  // namespace stepsim
