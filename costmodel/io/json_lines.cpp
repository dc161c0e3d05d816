#include "costmodel/io/json_lines.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "costmodel/io/json_numbers.h"

namespace stepsim {

JsonLines::JsonLines(std::string path, CutLine cut_line)
    : path_(std::move(path)), cut_line_(cut_line), file_(path_) {
  (void)end_of_line();  // Where the file cannot be read, or is none of ours, it says so.
}

std::size_t JsonLines::end_of_line() {
  std::size_t from = at_;
  while (true) {
    const std::size_t newline = text_.find('\n', from);
    if (newline != std::string::npos) {
      return newline;
    }
    text_.erase(0, std::exchange(at_, 0));
    from = text_.size();
    if (!file_.append(text_)) {
      return std::string::npos;
    }
    text_.reserve(text_.size() + kJsonPadding);
  }
}

bool JsonLines::next_line() {
  while (true) {
    const std::size_t newline = end_of_line();
    const std::size_t end = std::min(newline, text_.size());
    if (newline == std::string::npos && at_ >= end) {
      return false;
    }
    at_line_ = std::string_view{text_}.substr(at_, end - at_);
    at_ = std::min(end + 1, text_.size());
    ends_ = newline != std::string::npos;
    ++line_;
    if (at_line_.find_first_not_of(" \t\r") != std::string_view::npos) {
      return true;
    }
  }
}

bool JsonLines::parse() {
  try {
    value_ = parse_json(at_line_, path_, line_);
    refuse_second_header();
    return true;
  } catch (const InputError&) {
    if (ends_) {
      throw;
    }
  }
  if (cut_line_ == CutLine::Refuse) {
    fail("the last line is cut off");
  }
  dropped_ = true;
  return false;
}

bool JsonLines::next() {
  // A line that is dropped is the last one.
  return next_line() && parse();
}

JsonReader JsonLines::header(std::string_view format) {
  bool is_there = false;
  bool is_object = true;
  try {
    is_there = next();
    is_object = !is_there || value_->is_object();
  } catch (const InputError&) {
    is_object = false;
  }
  if (!is_object) {
    fail(fmt::format("{}not a file of JSON lines; its first line should hold \"format\": \"{}\"",
                     path_.ends_with(".toml") ? "a scenario (TOML), " : "",
                     format));
  }
  if (!is_there) {
    throw InputError(SourcePlace{path_, 1, 0, ""},
                     "no header; the first line must hold \"format\": \"{}\"",
                     format);
  }
  JsonReader header = reader();
  header.require_format(format);
  format_ = format;
  return header;
}

void JsonLines::refuse_second_header() const {
  if (!format_.empty() && value_->is_object() && value_->contains("format")) {
    fail("a second header: several files in one; give each of them by itself");
  }
}

void JsonLines::fail(const std::string& message) const {
  throw InputError(SourcePlace{path_, line_, 0, ""}, message);
}

std::string json_number(double value) {
  return fmt::format("{}", finite(value));
}

std::string json_text(std::string_view value) {
  return Json(value).dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace stepsim
