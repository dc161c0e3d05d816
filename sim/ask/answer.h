#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "costmodel/io/json_file.h"
#include "costmodel/terminal/commands.h"
#include "costmodel/terminal/screen.h"
#include "sim/report/json.h"

namespace stepsim {

/// Where the program writes an answer: files, "-" for standard output, or empty.
struct Outputs {
  std::string json;
  std::string csv;
  std::string html;
  std::string markdown;
  bool quiet = false;  ///< True: the text is not printed.
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
  std::function<Json()> json;
  /// Predictions whose rows json() has marks of, see write_streamed(); null: there are none.
  std::shared_ptr<const std::vector<Prediction>> streamed;
  std::function<std::string()> csv;
  std::function<std::string()> html;  ///< Raises EnvironmentFault in a build without pages.
  std::function<std::string()> markdown;

  /// Writes the JSON as it stands in a file. Names come from files of others: bytes that are not
  /// UTF-8 are replaced.
  void write_json(const TextSink& sink) const;
  [[nodiscard]] std::string json_text() const;
};

/// Prints and writes the answer as its outputs say, and returns its status.
int write_answer(const Answer& answer);

}  // namespace stepsim
