#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "costmodel/io/json_file.h"
#include "costmodel/io/json_value.h"

namespace stepsim {

/// The all-reduce of one gradient bucket. Times are milliseconds from the start of the step.
struct BucketRecord {
  std::int64_t bytes = 0;
  double launch_ms = 0;
  double end_ms = 0;
  bool operator==(const BucketRecord&) const = default;
};

/// What fully_shard did before a unit's forward: its hooks, the gather and the copies around it.
/// Times are milliseconds from the start of the step.
struct GatherRecord {
  int unit = 0;  ///< Its number in the header's "parallel.unit_modules".
  double launch_ms = 0;
  double end_ms = 0;
  double cpu_ms = 0;  ///< CPU time of the computing thread in it; 0: not measured.
  bool operator==(const GatherRecord&) const = default;
};

/// One rank's step as it was measured. Times are milliseconds.
struct StepRecord {
  int repeat = 0;  ///< The number of the pass over the plan, from 0.
  int step = 0;
  int rank = 0;
  std::int64_t samples = 0;
  std::int64_t max_length = 0;
  std::int64_t useful_tokens = 0;
  std::int64_t padded_tokens = 0;
  /// The start, on a clock that all ranks of a host share; read_record_files() lays hosts' clocks
  /// over each other.
  double start_ms = 0;
  double data_ms = 0;
  double forward_ms = 0;
  double backward_ms = 0;  ///< Ends with the last gradient kernel.
  double wait_ms = 0;      ///< Exposed communication: the wait for all-reduces after the backward.
  double optimizer_ms = 0;
  double step_ms = 0;
  double thread_cpu_ms = 0;    ///< CPU time of the computing thread; 0: not measured.
  double forward_cpu_ms = 0;   ///< The forward's part of it; 0: not measured.
  double backward_cpu_ms = 0;  ///< The backward's part; waiting for all-reduces takes none.
  /// In which the host of a GPU made the batch, and put in the forward, the backward and the
  /// optimizer; 0: not measured.
  double data_host_ms = 0;
  double forward_host_ms = 0;
  double backward_host_ms = 0;
  double optimizer_host_ms = 0;
  double lag_ms = 0;                  ///< The device was so far behind the host at the end.
  std::int64_t compiled_graphs = 0;   ///< Graphs that torch.compile made in it.
  double loss = 0;                    ///< NaN in a diverged run, which the file writes as null.
  std::int64_t micro_batches = 1;     ///< The counts and times here are sums over this many.
  std::vector<std::int64_t> lengths;  ///< [sample]; empty when not recorded.
  /// [micro-batch] Samples, in the order of `lengths`, and the length that they are padded to;
  /// empty for one micro-batch and when not recorded.
  std::vector<std::int64_t> micro_batch_samples;
  std::vector<std::int64_t> micro_batch_max_lengths;
  std::vector<BucketRecord> buckets;
  std::vector<GatherRecord> gathers;  ///< In the order of the forward's calls.

  bool operator==(const StepRecord&) const = default;
};

/// Whether gradients were reduced in every micro-batch of the step and not only in the last one, as
/// training without no_sync() does: the buckets then repeat.
[[nodiscard]] bool reduces_every_micro_batch(const StepRecord& step);

/// The buckets that the last micro-batch of the step launched.
[[nodiscard]] std::span<const BucketRecord> last_buckets(const StepRecord& step);

/// What a live run measured.
struct RunRecord {
  std::string scenario;
  std::string policy;
  std::string plan_profile;     ///< Name of the profile that its plan was made with, if known.
  std::string plan_profile_id;  ///< And its id.
  int world_size = 0;
  std::string backend;  ///< "gloo", "nccl"
  std::string device;
  std::string host;        ///< Of the rank that wrote the header; empty where it does not say.
  std::string started_at;  ///< ISO 8601, UTC.
  int warmup_steps = 0;    ///< The leading steps of each repeat that means leave out.
  int repeats = 1;
  int cores = 0;  ///< Processor cores for all ranks together, which run on one host; 0: unknown.
  JsonValue versions;  ///< Versions of libraries and driver, as the run named them.
  /// What trained, as stepsim_recorder.py describes it: "model" (parameters in order of
  /// registration), "wrappers" of it (torch.compile's), "ddp" or "parallel" (fully_shard's units,
  /// mesh and settings), "optimizer", "loader", "autocast"; "calibration" are the shapes that
  /// stepsim_calibrate.py ran and skipped, "unit_host" the UnitHostTimes that it measured,
  /// "sentinel_model" the plan's model, whose sentinel stepsim_live.py timed. Null when the record
  /// does not say.
  JsonValue training;
  std::vector<double> sentinel_ms;  ///< The calibration's sentinel, measured again during the run.
  std::vector<StepRecord> steps;

  bool operator==(const RunRecord&) const = default;
};

/// Whether fully_shard was applied to what trained.
[[nodiscard]] bool is_sharded(const RunRecord& record);

/// The start of the first recorded step and the end of the last, on the record's clock, in
/// milliseconds. The record has steps.
[[nodiscard]] std::pair<double, double> clock_span(const RunRecord& record);

/// Reads a run record. The first line has "format": "stepsim-run-record/1"; each line after it is a
/// step of one rank. Optional are all members of the header but format and world_size, and in a row
/// repeat, wait_ms, the CPU times, micro_batches and their members, loss, lengths, buckets and
/// gathers. A step and rank may occur once in each repeat. A last line that was cut off is dropped
/// with a warning in `warnings`, so that the record of a killed run can be read; any other damage
/// raises InputError with file:line.
[[nodiscard]] RunRecord read_run_record(const std::string& path,
                                        std::vector<std::string>* warnings = nullptr);
void write_run_record(const std::string& path, const RunRecord& record);

/// Writes a step as one line of a record, exact for doubles.
[[nodiscard]] std::string step_json(const StepRecord& step);
/// Reads what step_json() writes. Raises InputError, also for a rank outside of the world size.
[[nodiscard]] StepRecord read_step(JsonReader row, int world_size);

}  // namespace stepsim
