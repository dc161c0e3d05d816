#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "calibrate/import/nccl/nccl_log.h"
#include "calibrate/import/nccl/nccl_ranks.h"

namespace stepsim {

/// Whether a table may be the source of a calibration. Warn means yes, but mind the reasons.
enum class NcclVerdict { Accept, Warn, Refuse };

[[nodiscard]] std::string_view name_of(NcclVerdict verdict);  ///< "accept", "warn", "refuse"

/// Something to know about a table. With the weight Accept it is no more than a note.
struct NcclReason {
  std::string code;  ///< "few_sizes", …
  std::string message;
  NcclVerdict weight = NcclVerdict::Accept;
};

/// What the user says about a log, which overrules what the log says.
struct NcclStatements {
  std::string op;  ///< Empty = as in the log.
  std::optional<int> ranks;
  std::optional<int> nodes;
  std::set<std::string> accepted;  ///< Codes of refusals to turn into warnings.
};

/// A table, judged.
struct NcclSweep {
  NcclTable table;  ///< With all rows that were read.
  std::string op;   ///< Empty = not known.
  std::optional<int> ranks;
  std::string ranks_from;  ///< "rank lines", "busbw / algbw", "--ranks", "JSON"
  std::optional<int> nodes;
  bool nodes_assumed = false;  ///< The log does not say; eight ranks a node are assumed.
  std::optional<RankRange> factor_ranks;
  double peak_busbw = 0;  ///< GB/s
  std::int64_t peak_bytes = 0;
  std::optional<double> block_difference;  ///< Median |out-of-place - in-place| / in-place.
  std::vector<NcclRow> used;               ///< The rows fit for calibration, in the log's order.
  std::vector<NcclReason> reasons;

  [[nodiscard]] NcclVerdict verdict() const;
};

/// Checks rows against their own bandwidths, the table against its footer, and the ranks against
/// each other.
[[nodiscard]] NcclSweep check_table(const NcclLog& log,
                                    NcclTable table,
                                    const NcclStatements& statements);

}  // namespace stepsim
