#include "calibrate/live/step_line.h"

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <limits>

#include <fmt/format.h>

#include "costmodel/base/input_error.h"

namespace stepsim {
namespace {

/// Applies `visit` to every number of a step, in the order of the line.
template <typename Step, typename Visit>
void visit_numbers(Step& step, const Visit& visit) {
  visit(step.repeat);
  visit(step.step);
  visit(step.rank);
  visit(step.samples);
  visit(step.max_length);
  visit(step.useful_tokens);
  visit(step.padded_tokens);
  visit(step.start_ms);
  visit(step.data_ms);
  visit(step.forward_ms);
  visit(step.backward_ms);
  visit(step.wait_ms);
  visit(step.optimizer_ms);
  visit(step.step_ms);
  visit(step.thread_cpu_ms);
  visit(step.loss);
}

/// Reads numbers separated by spaces.
class NumberReader {
 public:
  explicit NumberReader(const std::string& text) : text_(text), next_(text.c_str()) {}

  void read(double& value) {
    char* end = nullptr;
    value = std::strtod(next_, &end);
    advance(end);
  }
  void read(std::int64_t& value) {
    char* end = nullptr;
    errno = 0;
    value = std::strtoll(next_, &end, 10);
    if (errno == ERANGE) {
      damaged();
    }
    advance(end);
  }
  void read(int& value) {
    std::int64_t wide = 0;
    read(wide);
    if (wide < std::numeric_limits<int>::min() || wide > std::numeric_limits<int>::max()) {
      damaged();
    }
    value = static_cast<int>(wide);
  }
  void require_end() const {
    if (*next_ != '\0') {
      damaged();
    }
  }

 private:
  void advance(const char* end) {
    if (end == next_) {
      damaged();
    }
    next_ = end;
  }
  [[noreturn]] void damaged() const {
    throw EnvironmentFault("a rank of the live run sent a damaged line: " + printable(text_));
  }
  const std::string& text_;
  const char* next_;
};

}  // namespace

std::string format_line(const LiveLine& line) {
  if (line.is_sentinel) {
    return fmt::format("1 {} {}", line.plan, line.sentinel_ms);
  }
  std::string text = fmt::format("0 {}", line.plan);
  auto out = std::back_inserter(text);
  // {} prints the shortest form that reads back as the same double.
  visit_numbers(line.step, [&out](const auto& value) { out = fmt::format_to(out, " {}", value); });
  out = fmt::format_to(out, " {}", static_cast<std::int64_t>(line.step.buckets.size()));
  for (const BucketRecord& bucket : line.step.buckets) {
    out = fmt::format_to(out, " {} {} {}", bucket.bytes, bucket.launch_ms, bucket.end_ms);
  }
  return text;
}

LiveLine parse_line(const std::string& text) {
  NumberReader reader(text);
  LiveLine line;
  int kind = 0;
  reader.read(kind);
  reader.read(line.plan);
  line.is_sentinel = kind == 1;
  if (line.is_sentinel) {
    reader.read(line.sentinel_ms);
    reader.require_end();
    return line;
  }
  visit_numbers(line.step, [&reader](auto& value) { reader.read(value); });
  std::int64_t buckets = 0;
  reader.read(buckets);
  for (std::int64_t i = 0; i < buckets; ++i) {
    BucketRecord& bucket = line.step.buckets.emplace_back();
    reader.read(bucket.bytes);
    reader.read(bucket.launch_ms);
    reader.read(bucket.end_ms);
  }
  reader.require_end();
  return line;
}

}  // namespace stepsim
