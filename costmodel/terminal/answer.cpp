#include "costmodel/terminal/answer.h"

#include <cstdio>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "costmodel/base/index.h"
#include "costmodel/base/input_error.h"
#include "costmodel/terminal/screen.h"
#include "costmodel/terminal/wrap.h"

namespace stepsim {

namespace {

/// Hands JSON on with DEL and the control characters of C1 as \\uNNNN. The library escapes all
/// others.
class EscapedJson {
 public:
  explicit EscapedJson(const TextSink& sink) : sink_(sink) {}

  void write(std::string_view piece) {
    std::string text;
    std::size_t from = 0;
    for (std::size_t at = 0; at < piece.size(); ++at) {
      const auto byte = static_cast<unsigned char>(piece[at]);
      const bool is_c1 = lead_ && byte < 0xa0;
      if (is_c1 || byte == 0x7f) {
        text += piece.substr(from, at - from);
        text += fmt::format("\\u{:04x}", byte);
        from = at + 1;
      } else if (lead_) {
        text += piece.substr(from, at - from);
        text += kLead;
        from = at;
      }
      lead_ = piece[at] == kLead;
      if (lead_) {
        text += piece.substr(from, at - from);
        from = at + 1;
      }
    }
    text += piece.substr(from);
    sink_(text);
  }

 private:
  static constexpr char kLead = '\xc2';  ///< Begins U+0080 to U+00BF in UTF-8.
  const TextSink& sink_;
  bool lead_ = false;  ///< That byte was the last, and is not handed on yet.
};

}  // namespace

void Answer::write_json(const TextSink& out) const {
  EscapedJson escaped(out);
  const TextSink sink = [&](std::string_view piece) { escaped.write(piece); };
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
    print_message(fmt::format("{}: warning: {}", program, warning));
  }
  if (answer.text && !outputs.quiet) {
    Screen screen = output_screen();
    if (outputs.as_file) {
      screen = {0, false, screen.utf8, false};
    }
    screen.wide = outputs.wide;
    print_report(answer.text(screen), screen);
    if (!answer.aside.empty()) {
      std::fflush(stdout);  // Where both go to one file, it stands behind the text.
      const Screen beside = screen_of(STDERR_FILENO);
      print_message(
          beside.is_terminal()
              ? fmt::format("{}", fmt::join(wrapped(answer.aside, at(beside.columns)), "\n"))
              : answer.aside);
    }
  }
  if (!outputs.markdown.empty()) {
    write_text_atomically(outputs.markdown, without_controls(answer.markdown()));
  }
  if (!outputs.json.empty()) {
    AtomicFile file(outputs.json);
    answer.write_json([&](std::string_view piece) { file.write(piece); });
    file.finish();
  }
  if (!outputs.csv.empty()) {
    write_text_atomically(outputs.csv, without_controls(answer.csv()));
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
    next.outputs.wide = outputs.wide;
    status = write_answer(program, next);
  }
  return status;
}

}  // namespace stepsim
