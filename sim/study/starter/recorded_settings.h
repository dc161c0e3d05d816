#pragma once

#include <string>

#include "costmodel/io/json_file.h"
#include "costmodel/records/run_record.h"

namespace stepsim {

/// The member of a table in a record's header, or null.
[[nodiscard]] Json told(const RunRecord& record, const char* table, const char* member);

/// The [ddp] table of a scenario that makes the recorded buckets, as TOML.
///
/// The header says what the caller set, or what recorders before 2.11's rules took for it; the
/// recorded buckets say what DDP made of that. So the header's limits hold where they make those
/// buckets, in reverse order of registration; else PyTorch's other rule for the first bucket is
/// tried. Where no bucket is smaller than the header's limits, gradients became ready in another
/// order; else there was a list of limits, which is found from the sizes. Left to its default, the
/// cap is not stated: with the newest rules a stated one would limit the first bucket as well.
[[nodiscard]] std::string ddp_text(const RunRecord& record);

/// The [parallel] table of a scenario that shards as the record's fully_shard did, as TOML; empty
/// for a record of another training.
[[nodiscard]] std::string parallel_text(const RunRecord& record);

}  // namespace stepsim
