#include "sim/batching/lengths.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <string_view>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "costmodel/base/input_error.h"
#include "costmodel/base/parse_number.h"
#include "costmodel/base/trimmed.h"
#include "costmodel/io/json_file.h"
#include "costmodel/io/json_lines.h"
#include "sim/batching/histogram.h"
#include "sim/batching/played_batches.h"
#include "sim/batching/random/random.h"

namespace stepsim {
namespace {

using Lengths = std::vector<std::int64_t>;
using SourceKind = LengthSource::Kind;

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
    length = rounded(std::exp(source.mu + source.sigma * random.normal()), source);
    // Drawn only where asked for, so that plain log-normal lengths keep their stream.
    if (source.outlier_probability > 0 && random.random() < source.outlier_probability) {
      length = source.max;
    }
  }
  return lengths;
}

/// One line of a file of lengths without its comment and blanks.
std::string_view stripped(std::string_view line) {
  return trimmed(line.substr(0, line.find('#')));
}

std::int64_t parse_length(std::string_view word, const SourcePlace& place) {
  const auto length = parse_number<std::int64_t>(word);
  if (!length) {
    throw InputError(
        place, "'{}' is not a length; write one whole number a line", printable(word, 40));
  }
  if (*length < 1 || *length > kMaxSampleLength) {
    throw InputError(place, "length {} is outside 1 .. {}", *length, kMaxSampleLength);
  }
  return *length;
}

void check_count(const std::string& path, std::size_t found, std::size_t count) {
  if (found == 0) {
    throw InputError(SourcePlace{path},
                     "holds no lengths; write the tokens of each sample, one number a line");
  }
  if (found < count) {
    throw InputError(SourcePlace{path}, "{} lengths, but {} samples are asked for", found, count);
  }
}

Lengths file_lengths(const std::string& path, std::size_t count) {
  const std::string file = read_text(path);
  const std::string_view text = without_byte_order_mark(file);
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
  check_count(path, lengths.size(), count);
  return lengths;
}

void require(bool holds, const char* message) {
  if (!holds) {
    throw InputError(message);
  }
}

std::int64_t jsonl_length(JsonReader reader, const std::string& field) {
  const Json& value = reader.get(field);
  std::int64_t length = 0;
  if (value.is_array()) {
    length = static_cast<std::int64_t>(value.size());
  } else if (value.is_number_integer()) {
    length = value.get<std::int64_t>();
  } else {
    reader.fail(field, "expected a length, or a list of tokens; a text has no length in tokens");
  }
  if (length < 1 || length > kMaxSampleLength) {
    reader.fail(field, fmt::format("length {} is outside 1 .. {}", length, kMaxSampleLength));
  }
  return length;
}

Lengths jsonl_lengths(const LengthSource& source, std::size_t count) {
  JsonLines lines(source.file, CutLine::Refuse);
  Lengths lengths;
  while ((count == 0 || lengths.size() < count) && lines.next()) {
    lengths.push_back(jsonl_length(lines.reader(), source.field));
  }
  check_count(source.file, lengths.size(), count);
  return lengths;
}

/// Ids that no batch of the plan holds are left out; the others keep their order. A sample that the
/// plan cuts is as long as the plan knows: to the end of its last part.
Lengths plan_lengths(const LengthSource& source, std::size_t count) {
  const std::string& path = source.file;
  const PlayedBatches played = read_played_batches(path);
  if (source.targets && played.targets.empty()) {
    throw InputError(SourcePlace{path}, "the plan has no target_lengths");
  }
  Lengths lengths = source.targets ? played.targets : played.lengths;
  check_count(path, lengths.size(), count);
  if (count > 0) {
    lengths.resize(count);
  }
  return lengths;
}

Lengths mixture(const LengthSource& source, std::size_t count) {
  PythonRandom random(source.seed);
  const double all = std::accumulate(source.weights.begin(), source.weights.end(), 0.0);
  std::vector<std::size_t> part_of(count);
  std::vector<std::int64_t> wanted(source.parts.size(), 0);
  for (auto& part : part_of) {
    double draw = random.random() * all;
    part = 0;
    while (part + 1 < source.parts.size() && draw >= source.weights[part]) {
      draw -= source.weights[part++];
    }
    ++wanted[part];
  }
  std::vector<Lengths> of_part(source.parts.size());
  for (std::size_t part = 0; part < source.parts.size(); ++part) {
    if (wanted[part] > 0) {
      of_part[part] = generate_lengths(source.parts[part], wanted[part]);
    }
  }
  std::vector<std::size_t> taken(source.parts.size(), 0);
  Lengths lengths;
  for (const std::size_t part : part_of) {
    lengths.push_back(of_part[part][taken[part]++]);
  }
  return lengths;
}

Lengths drawn_lengths(const LengthSource& source, std::int64_t count) {
  const auto size = static_cast<std::size_t>(count);
  switch (source.kind) {
    case SourceKind::Constant:
      return Lengths(size, source.constant);
    case SourceKind::Uniform:
      return uniform(source, size);
    case SourceKind::LogUniform:
      return log_uniform(source, size);
    case SourceKind::LogNormal:
      return log_normal(source, size);
    case SourceKind::Histogram:
      return sample_histogram(read_histogram(source.file), count, source.seed);
    case SourceKind::File:
      return file_lengths(source.file, size);
    case SourceKind::Jsonl:
      return jsonl_lengths(source, size);
    case SourceKind::Plan:
      return plan_lengths(source, size);
    case SourceKind::Values:
      check_count("values", source.values->size(), size);
      return {source.values->begin(),
              size == 0 ? source.values->end()
                        : source.values->begin() + static_cast<std::ptrdiff_t>(size)};
    case SourceKind::Mixture:
      return mixture(source, size);
  }
  throw InputError("unknown kind of length source");
}

}  // namespace

bool has_own_count(const LengthSource& source) {
  return source.kind == SourceKind::Histogram || source.kind == SourceKind::File ||
         source.kind == SourceKind::Jsonl || source.kind == SourceKind::Plan ||
         source.kind == SourceKind::Values;
}

void check_lengths(const LengthSource& source) {
  require(source.cap >= 0, "cap: expected a length of at least 1, or 0 for no cut");
  if (source.kind == SourceKind::Constant) {
    require(source.constant >= 1 && source.constant <= kMaxSampleLength,
            "constant: a sample is at least 1 token long, and at most 2^30");
    return;
  }
  if (source.kind == SourceKind::Values) {
    require(source.values != nullptr && !source.values->empty(), "values: there are no lengths");
    for (const std::int64_t length : *source.values) {
      require(length >= 1 && length <= kMaxSampleLength,
              "values: a sample is at least 1 token long, and at most 2^30");
    }
    return;
  }
  if (has_own_count(source)) {
    require(!source.file.empty(), "the path of the file is empty");
    require(source.kind != SourceKind::Jsonl || !source.field.empty(),
            "field: the name of a field");
    return;
  }
  if (source.kind == SourceKind::Mixture) {
    require(!source.parts.empty() && source.parts.size() == source.weights.size(),
            "mixture: expected at least one part, each with its weight");
    for (std::size_t i = 0; i < source.parts.size(); ++i) {
      require(std::isfinite(source.weights[i]) && source.weights[i] > 0,
              "mixture: a weight is more than 0");
      check_lengths(source.parts[i]);
    }
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
  if (source.kind == SourceKind::Constant) {
    longest = source.constant;
  } else if (source.kind == SourceKind::Mixture) {
    for (const LengthSource& part : source.parts) {
      const std::int64_t of_part = longest_length(part);
      if (of_part == 0) {
        longest = 0;
        break;
      }
      longest = std::max(longest, of_part);
    }
  } else if (!has_own_count(source)) {
    longest = source.max;
  }
  return source.cap > 0 && (longest > source.cap || longest == 0) ? source.cap : longest;
}

Lengths generate_lengths(const LengthSource& source, std::int64_t count) {
  check_lengths(source);
  require(has_own_count(source) || count >= 1, "samples: expected at least 1");
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
