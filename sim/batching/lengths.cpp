#include "sim/batching/lengths.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numbers>
#include <string_view>

#include <fmt/core.h>

#include "costmodel/input_error.h"
#include "costmodel/json_file.h"
#include "sim/batching/histogram.h"
#include "sim/batching/random.h"

namespace stepsim {
namespace {

using Lengths = std::vector<std::int64_t>;
using Kind = LengthSource::Kind;

/// Round half to even, as Python's round(), then clamped. A huge or infinite value gives max.
std::int64_t rounded(double value, const LengthSource& source) {
  const double low = static_cast<double>(source.min);
  const double high = static_cast<double>(source.max);
  return static_cast<std::int64_t>(std::nearbyint(std::clamp(value, low, high)));
}

/// The token-skew lab's data set: log-uniform lengths, then an outlier draw that is always made,
/// then, with label_classes, a label that only moves the stream on.
/// Source: playground-cuda transformer_token_skew_lab.py at commit 119ae2b4.
Lengths log_uniform(const LengthSource& source, std::size_t count) {
  PythonRandom random(source.seed);
  const double low = std::log(static_cast<double>(source.min));
  const double high = std::log(static_cast<double>(source.max));
  Lengths lengths(count);
  for (auto& length : lengths) {
    length = rounded(std::exp(random.uniform(low, high)), source);
    if (random.random() < source.outlier_probability) {
      length = source.max;
    }
    if (source.label_classes > 0) {
      (void)random.below(static_cast<std::uint64_t>(source.label_classes));
    }
  }
  return lengths;
}

Lengths uniform(const LengthSource& source, std::size_t count) {
  PythonRandom random(source.seed);
  const auto width = static_cast<std::uint64_t>(source.max - source.min) + 1;
  Lengths lengths(count);
  for (auto& length : lengths) {
    length = source.min + static_cast<std::int64_t>(random.below(width));
  }
  return lengths;
}

Lengths log_normal(const LengthSource& source, std::size_t count) {
  PythonRandom random(source.seed);
  Lengths lengths(count);
  for (auto& length : lengths) {
    const double radius = std::sqrt(-2.0 * std::log(1.0 - random.random()));
    const double normal = radius * std::cos(2.0 * std::numbers::pi * random.random());
    length = rounded(std::exp(source.mu + source.sigma * normal), source);
  }
  return lengths;
}

/// One line of a file of lengths without its comment and blanks.
std::string_view stripped(std::string_view line) {
  line = line.substr(0, line.find('#'));
  const auto first = line.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) {
    return {};
  }
  return line.substr(first, line.find_last_not_of(" \t\r") - first + 1);
}

std::int64_t parse_length(std::string_view word, const SourcePlace& place) {
  std::int64_t length = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), length);
  if (error != std::errc() || end != word.data() + word.size()) {
    throw InputError(
        place,
        fmt::format("'{}' is not a length; write one whole number a line", printable(word, 40)));
  }
  if (length < 1 || length > kMaxSampleLength) {
    throw InputError(place, fmt::format("length {} is outside 1 .. {}", length, kMaxSampleLength));
  }
  return length;
}

Lengths file_lengths(const std::string& path, std::size_t count) {
  const std::string text = read_text(path);
  Lengths lengths;
  int line_number = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line(text.data() + begin, end - begin);
    begin = end + 1;
    ++line_number;
    const auto word = stripped(line);
    if (!word.empty()) {
      const auto column = static_cast<int>(word.data() - line.data()) + 1;
      lengths.push_back(parse_length(word, {path, line_number, column, std::string(line)}));
    }
    if (count > 0 && lengths.size() == count) {
      return lengths;
    }
  }
  if (lengths.empty() || lengths.size() < count) {
    throw InputError(fmt::format("{}: error: {} lengths, but {} samples are asked for",
                                 path,
                                 lengths.size(),
                                 std::max<std::size_t>(count, 1)));
  }
  return lengths;
}

void require(bool holds, const char* message) {
  if (!holds) {
    throw InputError(message);
  }
}

Lengths drawn_lengths(const LengthSource& source, std::int64_t count) {
  const auto size = static_cast<std::size_t>(count);
  switch (source.kind) {
    case Kind::Constant:
      return Lengths(size, source.constant);
    case Kind::Uniform:
      return uniform(source, size);
    case Kind::LogUniform:
      return log_uniform(source, size);
    case Kind::LogNormal:
      return log_normal(source, size);
    case Kind::Histogram:
      return sample_histogram(read_histogram(source.file), count, source.seed);
    case Kind::File:
      return file_lengths(source.file, size);
  }
  throw InputError("unknown kind of length source");
}

}  // namespace

void check_lengths(const LengthSource& source) {
  require(source.cap >= 0, "cap: expected a length of at least 1, or 0 for no cut");
  if (source.kind == Kind::Constant) {
    require(source.constant >= 1 && source.constant <= kMaxSampleLength,
            "constant: a sample is at least 1 token long, and at most 2^30");
    return;
  }
  if (source.kind == Kind::Histogram || source.kind == Kind::File) {
    require(!source.file.empty(), "the path of the file is empty");
    return;
  }
  require(source.min >= 1, "the shortest length is below 1");
  require(source.max <= kMaxSampleLength, "the longest length is above 2^30");
  require(source.min <= source.max, "the shortest length is above the longest");
  require(source.outlier_probability >= 0 && source.outlier_probability <= 1,
          "outlier_probability: expected a share from 0 to 1");
  require(source.label_classes >= 0 && source.label_classes <= kMaxSampleLength,
          "label_classes: expected 0 .. 2^30");
  require(std::isfinite(source.mu), "mu: expected a finite number");
  require(std::isfinite(source.sigma) && source.sigma >= 0,
          "sigma: expected a finite number, 0 or more");
}

std::int64_t longest_length(const LengthSource& source) {
  std::int64_t longest = 0;
  if (source.kind == Kind::Constant) {
    longest = source.constant;
  } else if (source.kind != Kind::Histogram && source.kind != Kind::File) {
    longest = source.max;
  }
  return source.cap > 0 && (longest > source.cap || longest == 0) ? source.cap : longest;
}

Lengths generate_lengths(const LengthSource& source, std::int64_t count) {
  check_lengths(source);
  const bool has_own_count = source.kind == Kind::Histogram || source.kind == Kind::File;
  require(has_own_count || count >= 1, "samples: expected at least 1");
  require(count >= 0 && count <= kMaxSampleCount, "samples: at most 2^27");
  auto lengths = drawn_lengths(source, count);
  require(static_cast<std::int64_t>(lengths.size()) <= kMaxSampleCount, "samples: at most 2^27");
  if (source.cap > 0) {
    for (auto& length : lengths) {
      length = std::min(length, source.cap);
    }
  }
  return lengths;
}

}  // namespace stepsim
