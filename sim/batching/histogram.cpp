#include "sim/batching/histogram.h"

#include <algorithm>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "costmodel/base/mapped.h"
#include "costmodel/base/parse_number.h"
#include "costmodel/io/json_file.h"
#include "sim/batching/lengths.h"
#include "sim/batching/random/random.h"

namespace stepsim {
namespace {

using Counts = std::vector<std::pair<std::int64_t, std::int64_t>>;

std::int64_t whole_number(const Json& value, JsonReader& reader, const char* what) {
  if (!value.is_number_integer()) {
    reader.fail("counts", fmt::format("a {} is not a whole number: {}", what, value.dump()));
  }
  return value.get<std::int64_t>();
}

std::int64_t length_from_key(const std::string& key, JsonReader& reader) {
  const auto length = parse_number<std::int64_t>(key);
  if (!length) {
    reader.fail("counts", fmt::format("a length is not a whole number: {}", Json(key).dump()));
  }
  return *length;
}

Counts read_counts(const Json& json, JsonReader& reader) {
  Counts counts;
  if (json.is_object()) {
    for (const auto& [key, count] : json.items()) {
      counts.emplace_back(length_from_key(key, reader), whole_number(count, reader, "count"));
    }
  } else if (json.is_array()) {
    for (const auto& pair : json) {
      if (!pair.is_array() || pair.size() != 2) {
        reader.fail("counts", "a list holds pairs: [[length, count], …]");
      }
      counts.emplace_back(whole_number(pair[0], reader, "length"),
                          whole_number(pair[1], reader, "count"));
    }
  } else {
    reader.fail("counts", "expected {\"length\": count, …} or [[length, count], …]");
  }
  std::ranges::sort(counts);
  return counts;
}

void check_counts(const Counts& counts, JsonReader& reader) {
  std::int64_t total = 0;
  std::int64_t previous = 0;
  for (const auto& [length, count] : counts) {
    if (length < 1 || length > kMaxSampleLength) {
      reader.fail("counts", fmt::format("length {} is outside 1 .. {}", length, kMaxSampleLength));
    }
    if (length == previous) {
      reader.fail("counts", fmt::format("length {} is given twice", length));
    }
    if (count < 0 || count > kMaxSampleCount - total) {
      reader.fail("counts",
                  fmt::format("count {} of length {}: counts are 0 or more and at most {} in sum",
                              count,
                              length,
                              kMaxSampleCount));
    }
    previous = length;
    total += count;
  }
  if (total == 0) {
    reader.fail("counts", "no sequence at all");
  }
}

}  // namespace

std::int64_t LengthHistogram::total() const {
  return sum_of(counts, [](const auto& entry) { return entry.second; });
}

LengthHistogram read_histogram(const std::string& path) {
  const Json json = parse_json(read_text(path), path);
  JsonReader reader(json, path, 1, "");
  reader.require_format("stepsim-lengths/1");
  LengthHistogram histogram;
  histogram.id = reader.text_or("id", "");
  histogram.description = reader.text_or("description", "");
  histogram.source = reader.text_or("source", "");
  histogram.licence = reader.text_or("licence", "");
  histogram.unit = reader.text_or("unit", "tokens");
  histogram.counts = read_counts(reader.get("counts"), reader);
  check_counts(histogram.counts, reader);
  return histogram;
}

std::vector<std::int64_t> sample_histogram(const LengthHistogram& histogram,
                                           std::int64_t count,
                                           std::uint64_t seed) {
  std::vector<std::int64_t> ends;  // [entry] the sequences up to it.
  std::int64_t total = 0;
  for (const auto& [length, times] : histogram.counts) {
    ends.push_back(total += times);
  }
  const std::int64_t wanted = count == 0 ? total : count;
  std::vector<std::int64_t> lengths;
  lengths.reserve(static_cast<std::size_t>(wanted));
  for (std::int64_t left = wanted; left > 0 && total > 0; ++seed) {
    const std::int64_t taken = std::min(total, left);
    for (const std::int64_t index : torch_randperm_head(total, taken, seed)) {
      const auto entry = std::ranges::upper_bound(ends, index) - ends.begin();
      lengths.push_back(histogram.counts[static_cast<std::size_t>(entry)].first);
    }
    left -= taken;
  }
  return lengths;
}

}  // namespace stepsim
