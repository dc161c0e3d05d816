#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "costmodel/records/profile.h"
#include "costmodel/records/run_record.h"

namespace stepsim {

/// A unit of fully_shard as a record describes it.
struct RecordedUnit {
  int tensors = 0;
  std::int64_t gathered = 0;   ///< Bytes of its gather, padded to the shards;
  std::int64_t reduced = 0;    ///< of its reduction,
  std::int64_t gradients = 0;  ///< which is made of gradients of so many bytes.
  bool freed = true;           ///< After its forward, so that the backward gathers it again.
};

/// How a record's model was sharded.
struct RecordedUnits {
  std::vector<RecordedUnit> units;  ///< [as the rows' gathers number them]
  int shards = 1;
  int replicas = 1;
  int tensors = 0;                 ///< Of all units.
  std::vector<std::string> notes;  ///< What the recorder could not tell.

  /// Seconds of a thread's own work in a micro-batch: hooks, and copies by the byte.
  [[nodiscard]] double forward_seconds(const UnitHostTimes& host) const;
  [[nodiscard]] double backward_seconds(const UnitHostTimes& host) const;
};

/// Reads the units of a record for which is_sharded() holds. Raises InputError: its header does not
/// describe the model or the units.
[[nodiscard]] RecordedUnits recorded_units(const RunRecord& record, const std::string& file);

}  // namespace stepsim
