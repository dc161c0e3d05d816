#include "sim/cli/answer.h"

#include <nlohmann/json.hpp>

namespace stepsim {

std::string Answer::json_text() const {
  return json().dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

int write_answer(const Answer& answer) {
  const Outputs& outputs = answer.outputs;
  for (const std::string& warning : answer.warnings) {
    print_message("stepsim: warning: " + warning);
  }
  const bool to_screen =
      outputs.json != "-" && outputs.csv != "-" && outputs.html != "-" && outputs.markdown != "-";
  if (answer.text && !outputs.quiet && to_screen) {
    Screen screen = output_screen();
    if (outputs.as_file) {
      screen = {0, false, screen.utf8, false};
    }
    print_report(answer.text(screen), screen);
  }
  if (!outputs.markdown.empty()) {
    write_text_atomically(outputs.markdown, answer.markdown());
  }
  if (!outputs.json.empty()) {
    write_text_atomically(outputs.json, answer.json_text());
  }
  if (!outputs.csv.empty()) {
    write_text_atomically(outputs.csv, answer.csv());
  }
  if (!outputs.html.empty()) {
    write_text_atomically(outputs.html, answer.html());
  }
  return answer.status;
}

}  // namespace stepsim
