#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "costmodel/io/json_value.h"

namespace stepsim {

struct BucketRecord {
  std::int64_t bytes = 0;
  double launch_ms = 0;  ///< From the start of the step.
  double end_ms = 0;
  bool operator==(const BucketRecord&) const = default;
};

/// One rank's step as it really ran. Times in milliseconds.
struct StepRecord {
  int repeat = 0;  ///< Pass over the plan.
  int step = 0;
  int rank = 0;
  std::int64_t samples = 0;
  std::int64_t max_length = 0;
  std::int64_t useful_tokens = 0;
  std::int64_t padded_tokens = 0;
  double start_ms = 0;  ///< One clock for all ranks of a host.
  double data_ms = 0;
  double forward_ms = 0;
  double backward_ms = 0;  ///< Up to the end of the last gradient kernel.
  double wait_ms = 0;      ///< Exposed communication: waiting for all-reduces after backward.
  double optimizer_ms = 0;
  double step_ms = 0;
  double thread_cpu_ms = 0;           ///< CPU time of the computing thread; 0 = not measured.
  double forward_cpu_ms = 0;          ///< Of that, in the forward; 0 = not measured.
  double backward_cpu_ms = 0;         ///< In the backward: the wait for all-reduces takes none.
  double loss = 0;                    ///< Not a number in a diverged run; null in the file.
  std::int64_t micro_batches = 1;     ///< Whose counts and times are summed here.
  std::vector<std::int64_t> lengths;  ///< Of the samples; empty when not recorded.
  std::vector<BucketRecord> buckets;

  bool operator==(const StepRecord&) const = default;
};

struct RunRecord {
  std::string scenario;
  std::string policy;
  int world_size = 0;
  std::string backend;  ///< "gloo", "nccl"
  std::string device;
  std::string started_at;  ///< ISO 8601, UTC.
  int warmup_steps = 0;    ///< Of each repeat.
  int repeats = 1;
  int cores = 0;  ///< Processor cores for all ranks together, which run on one host; 0: unknown.
  JsonValue versions;               ///< Of the libraries and the driver, as the run named them.
  std::vector<double> sentinel_ms;  ///< The calibration's sentinel, measured again during the run.
  std::vector<StepRecord> steps;

  bool operator==(const RunRecord&) const = default;
};

/// "format": "stepsim-run-record/1" on the first line, then one step and rank a line.
/// Optional on reading: in the header all but format and world_size; in a row repeat, wait_ms,
/// the CPU times, micro_batches, loss, lengths and buckets. A step and rank may be there once a
/// repeat. A truncated last line is dropped with a warning in `warnings` (a killed run stays
/// readable); any other damage raises InputError with file:line.
[[nodiscard]] RunRecord read_run_record(const std::string& path,
                                        std::vector<std::string>* warnings = nullptr);
void write_run_record(const std::string& path, const RunRecord& record);

}  // namespace stepsim
