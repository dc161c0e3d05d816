#include "calibrate/import/recorded/recorded_waits.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>

#include <fmt/core.h>

namespace stepsim {
namespace {

/// Lags of the same kernels behind the last launch differ by this factor, and by this many
/// milliseconds, to which the clocks of host and device are laid over each other.
constexpr double kSameLag = 1.25;
constexpr double kClocks = 0.5;
/// The part of a pass that can run behind its last launches, at most: a small model's head and loss
/// over a large vocabulary are a third of its forward.
constexpr double kMostBehindForward = 0.35;
constexpr double kMostBehindBackward = 0.1;

/// A pass on the device, in milliseconds.
struct DevicePass {
  double ms = 0;
  double lag_ms = 0;  ///< The device was so far behind the host when all was put in.
  std::int64_t tokens = 0;
};

bool is_told(const StepRecord& row) {
  return row.micro_batches == 1 && row.samples > 0 && row.forward_host_ms > 0 &&
         row.backward_host_ms > 0 && row.optimizer_host_ms > 0;
}

DevicePass backward_of(const StepRecord& row) {
  return {
      row.backward_ms, row.lag_ms + row.optimizer_host_ms - row.optimizer_ms, row.padded_tokens};
}

DevicePass forward_of(const StepRecord& row) {
  return {row.forward_ms,
          backward_of(row).lag_ms + row.backward_host_ms - row.backward_ms,
          row.padded_tokens};
}

/// Whether the device may have waited in the optimizer: it began that before the last launch.
bool may_wait_in_optimizer(const StepRecord& row) {
  return row.lag_ms < row.optimizer_ms + kClocks;
}

/// [pass] Whether the device waited in it.
std::vector<bool> waits_in(const std::vector<DevicePass>& passes, double most_behind) {
  std::vector<std::size_t> by_tokens(passes.size());
  std::iota(by_tokens.begin(), by_tokens.end(), std::size_t{0});
  std::ranges::sort(by_tokens, std::greater<>(), [&](std::size_t i) { return passes[i].tokens; });
  std::vector<bool> waits(passes.size());
  double least = std::numeric_limits<double>::infinity();  // Of as many tokens or more.
  for (auto first = by_tokens.begin(); first != by_tokens.end();) {
    const auto last = std::find_if(first, by_tokens.end(), [&](std::size_t i) {
      return passes[i].tokens != passes[*first].tokens;
    });
    for (auto at = first; at != last; ++at) {
      least = std::min(least, passes[*at].lag_ms);
    }
    for (; first != last; ++first) {
      const DevicePass& pass = passes[*first];
      waits[*first] = pass.lag_ms <= kSameLag * std::max(least, 0.0) + kClocks &&
                      pass.lag_ms < most_behind * pass.ms;
    }
  }
  return waits;
}

}  // namespace

std::map<RunRow, PassWaits> find_waits(std::span<const RunRecord* const> records) {
  std::vector<RunRow> told;
  std::vector<DevicePass> forwards;
  std::vector<DevicePass> backwards;
  std::vector<bool> in_optimizer;
  for (std::size_t run = 0; run < records.size(); ++run) {
    if (records[run]->world_size > 1) {
      continue;
    }
    for (const StepRecord& row : records[run]->steps) {
      if (row.step >= records[run]->warmup_steps && is_told(row)) {
        told.emplace_back(run, row.repeat, row.step, row.rank);
        forwards.push_back(forward_of(row));
        backwards.push_back(backward_of(row));
        in_optimizer.push_back(may_wait_in_optimizer(row));
      }
    }
  }
  const std::vector<bool> in_forward = waits_in(forwards, kMostBehindForward);
  const std::vector<bool> in_backward = waits_in(backwards, kMostBehindBackward);
  std::map<RunRow, PassWaits> waits;
  for (std::size_t i = 0; i < told.size(); ++i) {
    if (in_forward[i] || in_backward[i] || in_optimizer[i]) {
      waits[told[i]] = {in_forward[i], in_backward[i], in_optimizer[i]};
    }
  }
  return waits;
}

std::string waits_text(std::span<const PassWaits> waits) {
  const auto forwards = std::ranges::count(waits, true, &PassWaits::forward);
  const auto backwards = std::ranges::count(waits, true, &PassWaits::backward);
  if (forwards + backwards == 0) {
    return "";
  }
  return fmt::format(
      "the device waited for its host in {} of {} forwards and {} of the backwards: these times "
      "are the host's, and left out of the device's",
      forwards,
      waits.size(),
      backwards);
}

}  // namespace stepsim
