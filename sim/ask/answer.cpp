#include "sim/ask/answer.h"

#include <string_view>

#include <nlohmann/json.hpp>

#include "costmodel/io/atomic_file.h"

namespace stepsim {

void Answer::write_json(const TextSink& sink) const {
  write_streamed(json(), streamed != nullptr ? *streamed : std::vector<Prediction>(), sink);
}

std::string Answer::json_text() const {
  std::string written;
  write_json([&](std::string_view piece) { written += piece; });
  return written;
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
    AtomicFile file(outputs.json);
    answer.write_json([&](std::string_view piece) { file.write(piece); });
    file.finish();
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
