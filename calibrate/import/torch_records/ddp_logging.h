#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "costmodel/io/json_file.h"
#include "costmodel/terminal/screen.h"

namespace stepsim {

/// Times of one step as DDP's logger measures them, in milliseconds.
struct DdpStepTimes {
  double forward = 0;
  double backward = 0;       ///< Until the last gradient was there.
  double communication = 0;  ///< From the first bucket's launch to the last one's end.
  double overlap = 0;        ///< Of the communication, beside the backward.

  [[nodiscard]] double exposed() const { return communication - overlap; }
};

/// What DistributedDataParallel._get_ddp_logging_data() returned on one rank.
struct DdpLogging {
  std::string file;
  int rank = 0;
  int world_size = 1;
  std::string backend;
  std::string module;
  std::int64_t iteration = 0;
  std::optional<DdpStepTimes> last;  ///< Absent: the logger had measured no step.
  std::optional<DdpStepTimes> mean;
  std::int64_t bucket_cap_bytes = 0;
  std::int64_t parameter_bytes = 0;
  std::int64_t tensors = 0;
  bool rebuilt = false;               ///< Whether the buckets below are those after the first step.
  std::vector<std::int64_t> buckets;  ///< Bytes, in the order of their reduction.
  std::vector<std::string> settings;  ///< Those that are on: "find_unused_parameters", …
};

/// Reads what json.dump(ddp._get_ddp_logging_data(), file) wrote, one file a rank. Raises
/// InputError: other JSON, a damaged member, the same rank twice.
[[nodiscard]] std::vector<DdpLogging> read_ddp_logging(const std::vector<std::string>& files);

/// Times of each rank, buckets, and what a scenario takes of them.
[[nodiscard]] std::string ddp_logging_report(std::span<const DdpLogging> ranks,
                                             const Screen& screen);

/// Returns the report as JSON of the form "stepsim-ddp-logging/1".
[[nodiscard]] Json ddp_logging_json(std::span<const DdpLogging> ranks);

}  // namespace stepsim
