#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "costmodel/records/run_record.h"

namespace stepsim {

/// Whether the device of a rank had nothing to do, for want of launches, in the passes of a step.
struct PassWaits {
  bool forward = false;
  bool backward = false;
  bool optimizer = false;

  /// Whether it was idle at some time in the forward or backward.
  [[nodiscard]] bool any() const { return forward || backward; }
};

/// A row of recorded runs: the place of its run, repeat, step and rank.
using RunRow = std::tuple<std::size_t, int, int, int>;

/// Finds the passes in which a GPU waited for its host: their times are the host's and not the
/// device's. [row] for those with such a pass.
///
/// The device is behind the host by what it still has to run. How far it was when a pass had been
/// put in follows from `lag_ms` and from the times of both since. If the device had waited up to
/// then, what is left is what runs behind the last launches: of a forward the head and the loss, of
/// a backward the embedding. That grows with the tokens, so it is no more than the least lag of the
/// batches that have as many, or more. A device that is further behind had launches in store. An
/// optimizer has no kernels that grow with the tokens: the device cannot have waited in it if it
/// began it after the host's last launch.
///
/// Not told are steps without the host's times, of several micro-batches, which share one time, and
/// of several ranks, whose devices wait for one another, too.
///
/// Args:
///     records: Each with its own times: a stall that is taken out of one pass moves the lags of
///         those before it.
[[nodiscard]] std::map<RunRow, PassWaits> find_waits(std::span<const RunRecord* const> records);

/// Says how many there were; empty where there were none.
[[nodiscard]] std::string waits_text(std::span<const PassWaits> waits);

}  // namespace stepsim
