#include "sim/report/html/timeline_data.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "costmodel/base/mapped.h"
#include "costmodel/base/parse_units.h"
#include "sim/report/html/page_number.h"

namespace stepsim {

namespace {

// NOLINTNEXTLINE(readability-identifier-naming): they are numbers of the page's data.
enum Kind : int { kData, kForward, kBackward, kOptimizer, kOther };

struct Stretch {
  SimTime begin;
  SimTime end;
};

struct Piece {
  Stretch at;
  int kind = kOther;
};

/// What one rank's compute stream does in a step: pieces of work and waits, each list in order.
struct Lane {
  std::vector<Piece> pieces;
  std::vector<Stretch> waits;

  void add(int kind, SimTime begin, SimTime end) {
    if (end > begin) {
      pieces.push_back({{begin, end}, kind});
    }
  }
};

int kind_of(Phase part) {
  switch (part) {
    case Phase::Data:
      return kData;
    case Phase::Forward:
      return kForward;
    case Phase::Backward:
      return kBackward;
    case Phase::Optimizer:
      return kOptimizer;
    case Phase::CopyOut:
    case Phase::Wait:
    case Phase::Other:
    case Phase::BackwardOther:
    case Phase::OptimizerOther:
      break;
  }
  return kOther;
}

Lane lane_of(const StepTimeline& timeline, int rank) {
  Lane lane;
  for (const TraceSpan& wait : timeline.waits) {
    if (wait.rank == rank) {
      lane.waits.push_back({wait.begin, wait.end});
    }
  }
  for (const TraceSpan& span : timeline.spans) {
    if (span.rank == rank && span.stream == kComputeStream) {
      lane.add(kind_of(span.phase), span.begin, span.end);
    }
  }
  return lane;
}

/// Merges neighbours of one kind into one piece, unless the stream waits between them.
std::vector<Piece> merged(const Lane& lane) {
  std::vector<Piece> pieces;
  auto wait = lane.waits.begin();
  for (const Piece& piece : lane.pieces) {
    bool waited = false;
    while (wait != lane.waits.end() && wait->begin < piece.at.begin) {
      waited = true;
      ++wait;
    }
    if (!pieces.empty() && !waited && pieces.back().kind == piece.kind) {
      pieces.back().at.end = piece.at.end;
    } else {
      pieces.push_back(piece);
    }
  }
  return pieces;
}

/// Returns when the transfers that a rank takes part in move; overlapping ones are merged.
std::vector<Stretch> transfers_of(const StepTimeline& timeline, const RankTimeline& rank) {
  std::vector<Stretch> transfers;
  for (std::size_t c = 0; c < rank.ready_at.size(); ++c) {
    if (rank.ready_at[c] != SimTime::max()) {
      transfers.push_back({timeline.reduce_start[c], timeline.reduce_end[c]});
    }
  }
  std::ranges::sort(transfers, {}, &Stretch::begin);
  std::vector<Stretch> apart;
  for (const Stretch& one : transfers) {
    if (!apart.empty() && one.begin <= apart.back().end) {
      apart.back().end = std::max(apart.back().end, one.end);
    } else {
      apart.push_back(one);
    }
  }
  return apart;
}

/// Splits the waits into those during transfers and the rest.
std::pair<std::vector<Stretch>, std::vector<Stretch>> divided(
    const std::vector<Stretch>& waits, const std::vector<Stretch>& transfers) {
  std::vector<Stretch> during;
  std::vector<Stretch> rest;
  for (const Stretch& wait : waits) {
    SimTime from = wait.begin;
    for (const Stretch& transfer : transfers) {
      const SimTime begin = std::max(from, transfer.begin);
      const SimTime end = std::min(wait.end, transfer.end);
      if (end <= begin) {
        continue;
      }
      if (begin > from) {
        rest.push_back({from, begin});
      }
      during.push_back({begin, end});
      from = end;
    }
    if (from < wait.end) {
      rest.push_back({from, wait.end});
    }
  }
  return {during, rest};
}

/// Converts simulated times to those of the page, which start with the first rank.
class Clock {
 public:
  explicit Clock(SimTime zero) : zero_(zero) {}
  [[nodiscard]] double at(SimTime time) const { return page_us(time - zero_); }
  [[nodiscard]] Json stretches(const std::vector<Stretch>& list) const {
    return mapped(list, [&](const Stretch& one) -> Json {
      return {at(one.begin), page_us(one.end - one.begin)};
    });
  }

 private:
  SimTime zero_;
};

Json buckets_json(const StepTimeline& timeline, const RankTimeline& rank, const Clock& clock) {
  Json json = Json::array();
  for (std::size_t c = 0; c < rank.ready_at.size(); ++c) {
    if (rank.ready_at[c] == SimTime::max()) {
      continue;  // The rank does not take part.
    }
    const CollectiveUse& use = timeline.collectives[c];
    Json entry = {clock.at(rank.ready_at[c]),
                  clock.at(timeline.reduce_start[c]),
                  clock.at(timeline.reduce_end[c]),
                  use.bucket};
    if (use.bucket < 0) {
      entry.push_back(std::string(name_of(use.kind)));
    }
    json.push_back(std::move(entry));
  }
  return json;
}

Json rank_json(const StepPicture& picture, std::size_t rank, const Clock& clock) {
  const StepTimeline& timeline = picture.timeline;
  const RankTimeline& times = timeline.ranks[rank];
  const Lane lane = lane_of(timeline, static_cast<int>(rank));
  Json compute = mapped(merged(lane), [&](const Piece& piece) -> Json {
    return {clock.at(piece.at.begin), page_us(piece.at.end - piece.at.begin), piece.kind};
  });
  const auto [exposed, waiting] = divided(lane.waits, transfers_of(timeline, times));
  return {{"rank", rank},
          {"useful", picture.ranks[rank].useful_tokens},
          {"padded", picture.ranks[rank].padded_tokens},
          {"compute", std::move(compute)},
          {"buckets", buckets_json(timeline, times, clock)},
          {"exposed", clock.stretches(exposed)},
          {"waiting", clock.stretches(waiting)}};
}

/// Returns how many ranks to draw: fewer when each has very many collectives.
std::size_t most_ranks(const StepPicture& picture) {
  constexpr std::size_t kMaxBars = 4000;
  const std::size_t bars = std::max<std::size_t>(picture.timeline.reduce_end.size(), 1);
  return std::clamp<std::size_t>(kMaxBars / bars, 2, kMaxDrawnRanks);
}

/// Returns the ranks to draw, ascending.
std::vector<std::size_t> drawn_ranks(const StepPicture& picture) {
  const std::size_t most = most_ranks(picture);
  std::vector<std::size_t> ranks(picture.timeline.ranks.size());
  std::iota(ranks.begin(), ranks.end(), std::size_t{0});
  if (ranks.size() <= most) {
    return ranks;
  }
  const auto compute = [&](std::size_t rank) {
    return picture.ranks[rank].forward_ms + picture.ranks[rank].backward_ms;
  };
  std::ranges::stable_sort(ranks, {}, compute);
  std::vector<std::size_t> drawn;
  for (std::size_t i = 0; i < most; ++i) {
    drawn.push_back(ranks[i * (ranks.size() - 1) / (most - 1)]);
  }
  std::ranges::sort(drawn);
  return drawn;
}

std::string cap_label(const StepPicture& picture) {
  return picture.bucket_cap ? format_bytes(*picture.bucket_cap) : "as it stands";
}

}  // namespace

TimelineLabel labelled(const Prediction& prediction,
                       const std::string& label,
                       Bytes memory_capacity) {
  const PredictionSummary& summary = prediction.summary;
  const StepTimeSummary& step = summary.step_time_ms;
  TimelineLabel result{prediction.policy, label, step.mean};
  if (step.high90 > step.low90) {
    result.interval90 = std::pair(step.low90, step.high90);
  }
  result.memory_mib = prediction.largest_memory_mib;
  result.memory_capacity_mib = static_cast<double>(memory_capacity.value()) / 0x1p20;
  result.is_out_of_memory = prediction.out_of_memory.has_value();
  return result;
}

Json timeline_json(const TimelineLabel& label, const StepPicture& picture) {
  SimTime first = SimTime::max();
  SimTime last_start = SimTime::min();
  SimTime end = SimTime::min();
  for (const RankTimeline& rank : picture.timeline.ranks) {
    first = std::min(first, rank.start);
    last_start = std::max(last_start, rank.start);
    end = std::max(end, rank.end);
  }
  const Clock clock(first);
  Json buckets = mapped(picture.buckets, [](const BucketSize& bucket) -> Json {
    return {bucket.bytes, bucket.tensors};
  });
  Json ranks = mapped(drawn_ranks(picture),
                      [&](std::size_t rank) { return rank_json(picture, rank, clock); });
  const auto& cap = picture.bucket_cap;
  return {
      {"policy", label.policy},
      {"label", label.label},
      {"point", label.point ? Json(*label.point) : Json(nullptr)},
      {"cap_bytes", cap ? Json(cap->value()) : Json(nullptr)},
      {"default", cap == Bytes(kDefaultBucketCapBytes)},
      {"own", label.is_own},
      {"best", label.is_best},
      {"step", picture.step},
      {"mean_ms", page_ms(label.mean_ms)},
      {"interval90",
       label.interval90 ? Json{page_ms(label.interval90->first), page_ms(label.interval90->second)}
                        : Json()},
      {"memory_mib", label.memory_mib > 0 ? Json(std::round(label.memory_mib)) : Json()},
      {"memory_capacity_mib",
       label.memory_capacity_mib > 0 ? Json(std::round(label.memory_capacity_mib)) : Json()},
      {"out_of_memory", label.is_out_of_memory},
      {"shown_us", page_us(end - last_start)},
      {"buckets", std::move(buckets)},
      {"units", picture.has_units},
      {"ranks", std::move(ranks)}};
}

Json cap_timelines_json(const std::vector<CapPoint>& caps,
                        Bytes memory_capacity,
                        std::vector<std::string>& warnings) {
  const auto mean_ms = [](const CapPoint& cap) {
    return cap.point.prediction.summary.step_time_ms.mean;
  };
  // Among equally fast caps the scenario's own counts as the best.
  const auto rank = [&](const CapPoint& cap) {
    return std::tuple(!cap.point.not_priced.empty(),
                      cap.point.prediction.out_of_memory.has_value(),
                      mean_ms(cap),
                      !cap.own);
  };
  const auto best = std::ranges::min_element(caps, {}, rank);
  Json timelines = Json::array();
  for (auto cap = caps.begin(); cap != caps.end(); ++cap) {
    if (!cap->point.not_priced.empty()) {
      warnings.push_back(fmt::format(
          "no timeline of bucket cap {}: {}", format_bytes(cap->cap), cap->point.not_priced));
      continue;
    }
    const StepPicture& picture = *cap->point.picture;
    TimelineLabel label = labelled(cap->point.prediction, cap_label(picture), memory_capacity);
    label.is_best = cap == best && caps.size() > 1 && !label.is_out_of_memory;
    label.is_own = cap->own;
    timelines.push_back(timeline_json(label, picture));
  }
  return timelines;
}

}  // namespace stepsim
