#include "costmodel/terminal/answer.h"

#include <string_view>

#include <nlohmann/json.hpp>

namespace stepsim {

void Answer::write_json(const TextSink& sink) const {
  if (streamed) {
    streamed(json(), sink);
  } else {
    sink(json().dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
  }
}

std::string Answer::json_text() const {
  std::string written;
  write_json([&](std::string_view piece) { written += piece; });
  return written;
}

int write_answer(const std::string& program, const Answer& answer) {
  const Outputs& outputs = answer.outputs;
  for (const std::string& warning : answer.warnings) {
    print_message(program + ": warning: " + warning);
  }
  if (answer.text && !outputs.quiet) {
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
  for (const std::string& error : answer.errors) {
    print_message(error);
  }
  int status = answer.status;
  for (const auto& more : answer.then) {
    Answer next = more();
    next.outputs.quiet = outputs.quiet;
    status = write_answer(program, next);
  }
  return status;
}

}  // namespace stepsim
