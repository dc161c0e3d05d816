#pragma once

#include <span>
#include <vector>

#include "calibrate/import/recorded_run.h"

namespace stepsim {

/// Adds the all-reduces of a run's steady steps, one sample a size: every time in `all_seconds`.
/// Those that queued behind another are left out; with gloo, where two share the links, each counts
/// for its part of the time.
void add_all_reduces(const RecordedRun& run, std::vector<CollectiveSample>& samples);

/// Sets the means and the noise, and puts the samples in order of size.
void finish_all_reduces(std::vector<CollectiveSample>& samples);

/// Sets what a byte weighs against an operation, so that the recorded buckets are launched where
/// the shares of the backward say; unchanged without recorded buckets.
void fit_shares(std::span<const RecordedRun> runs, RecordedModel& model);

}  // namespace stepsim
