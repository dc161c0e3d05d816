#include "costmodel/records/recording_span.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include <nlohmann/json.hpp>

#include "costmodel/base/utc_time.h"

namespace stepsim {
namespace {

/// A host's clock begins again when it starts anew, which the date tells.
bool on_one_day(const std::string& a, const std::string& b) {
  constexpr std::int64_t kDay = 86'400;  // Seconds.
  const auto first = parse_utc(a);
  const auto second = parse_utc(b);
  return first && second && std::abs(*first - *second) <= kDay;
}

}  // namespace

std::vector<RecordingSpan> recording_spans(const Profile& profile) {
  std::vector<RecordingSpan> spans;
  const nlohmann::ordered_json::json_pointer place("/recorded/records");
  if (!profile.provenance->is_object() || !profile.provenance->contains(place)) {
    return spans;
  }
  for (const auto& record : (*profile.provenance)[place]) {
    if (!record.is_object() || !record.contains("clock_ms") || !record.contains("host") ||
        !record.contains("started_at")) {
      continue;
    }
    const auto& clock = record["clock_ms"];
    if (clock.is_array() && clock.size() == 2 && clock[0].is_number() && clock[1].is_number() &&
        record["host"].is_string() && record["started_at"].is_string()) {
      spans.push_back({record["host"].get<std::string>(),
                       record["started_at"].get<std::string>(),
                       clock[0].get<double>(),
                       clock[1].get<double>()});
    }
  }
  return spans;
}

bool ran_beside(const RunRecord& live, const std::vector<RecordingSpan>& recordings) {
  constexpr double kBeside = 0.5;
  if (live.steps.empty() || live.host.empty()) {
    return false;
  }
  const auto [from, to] = clock_span(live);
  return std::ranges::any_of(recordings, [&, from = from, to = to](const RecordingSpan& span) {
    const double both = std::min(to, span.to_ms) - std::max(from, span.from_ms);
    return span.host == live.host && on_one_day(span.started_at, live.started_at) &&
           both >= kBeside * (to - from);
  });
}

}  // namespace stepsim
