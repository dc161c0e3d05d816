#include "sim/study/solve.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/core.h>

#include "costmodel/base/input_error.h"
#include "costmodel/base/parse_number.h"
#include "costmodel/base/trimmed.h"
#include "sim/predict/predict.h"
#include "sim/predict/run/jobs.h"

namespace stepsim {

namespace {

constexpr double kTolerance = 1e-4;  // A fraction of the range.

[[noreturn]] void fail_key(const std::string& text, const std::string& message) {
  throw InputError(SourcePlace{"--key " + text}, message);
}

NumberWithUnit end_of_range(const std::string& range, const std::string& text) {
  const auto end = parse_number_with_unit(text);
  if (!end) {
    fail_key(range, "'" + printable(trimmed(text)) + "' is not a number");
  }
  return *end;
}

/// Rounds a value to the digits that the tolerance justifies.
double rounded(const SolveRange& range, double value) {
  const double digits = std::ceil(-std::log10((range.high - range.low) * kTolerance / 10));
  const double scale = std::pow(10.0, digits);
  return std::clamp(std::round(value * scale) / scale, range.low, range.high);
}

}  // namespace

SolveRange parse_solve_range(const std::string& text) {
  const std::size_t equals = text.find('=');
  const std::size_t dots = text.find("..", equals == std::string::npos ? 0 : equals);
  if (equals == std::string::npos || dots == std::string::npos) {
    fail_key(text, "expected KEY=LOW..HIGH, such as interference.strength=0..2");
  }
  SolveRange range;
  range.key = trimmed(text.substr(0, equals));
  const auto [low, low_unit] = end_of_range(text, text.substr(equals + 1, dots - equals - 1));
  const auto [high, high_unit] = end_of_range(text, text.substr(dots + 2));
  if (range.key.empty()) {
    fail_key(text, "the key is empty; expected KEY=LOW..HIGH");
  }
  if (!low_unit.empty() && low_unit != high_unit) {
    fail_key(text,
             "give both ends in one unit, not " + printable(low_unit) + " and " +
                 (high_unit.empty() ? "none" : printable(high_unit)));
  }
  if (low >= high) {
    fail_key(text, "the range is empty: its end must be above its start");
  }
  range.low = low;
  range.high = high;
  range.unit = high_unit;
  return range;
}

std::string value_text(const SolveRange& range, double value) {
  return range.unit.empty() ? fmt::format("{:.12g}", value)
                            : fmt::format("{:.12g} {}", value, range.unit);
}

Solution solve(const Scenario& scenario,
               const SolveRange& range,
               Duration step_time,
               const SolveOptions& options) {
  const double wanted = to_ms(step_time);
  const double predictions = 3 + std::ceil(std::log2(1 / kTolerance));
  double done = 0;
  Solution solution;
  Jobs jobs(scenario, "--key");
  const auto step_ms = [&](double value) {
    if (options.on_progress) {
      options.on_progress(done++ / predictions);
    }
    const Prediction prediction = predict(
        jobs.job(options.policy, {{range.key, value_text(range, value)}}), PredictOptions());
    solution.notes = prediction.notes;
    return prediction.summary.step_time_ms.mean;
  };
  double low = range.low;
  double high = range.high;
  double low_ms = solution.low_ms = step_ms(low);
  double high_ms = solution.high_ms = step_ms(high);
  if (wanted < std::min(low_ms, high_ms) || wanted > std::max(low_ms, high_ms) ||
      low_ms == high_ms) {
    return solution;
  }
  const bool rises = low_ms < high_ms;
  while (high - low > kTolerance * (range.high - range.low)) {
    const double middle = low + (high - low) / 2;
    const double middle_ms = step_ms(middle);
    if ((middle_ms < wanted) == rises) {
      low = middle;
      low_ms = middle_ms;
    } else {
      high = middle;
      high_ms = middle_ms;
    }
  }
  const double share = high_ms == low_ms ? 0.5 : (wanted - low_ms) / (high_ms - low_ms);
  solution.found = true;
  solution.value = rounded(range, low + share * (high - low));
  solution.step_ms = step_ms(solution.value);
  return solution;
}

}  // namespace stepsim
