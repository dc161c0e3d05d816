#pragma once

#include <vector>

#include "costmodel/records/plan_file.h"

namespace stepsim {

/// The steps [begin, end) of one plan, which run in a row.
struct Block {
  std::size_t plan = 0;
  int begin = 0;
  int end = 0;
  bool operator==(const Block&) const = default;
};

/// The rounds of one repeat. In each round, every plan that has steps left runs its next block. The
/// order of the plans rotates from round to round and from repeat to repeat, so that no plan always
/// follows the same one.
[[nodiscard]] std::vector<std::vector<Block>> rounds_of(const std::vector<int>& steps,
                                                        int block,
                                                        int repeat);

/// A rank's micro-batches of one plan, by step. Raises InputError unless every step and rank has
/// exactly one micro-batch.
[[nodiscard]] std::vector<const MicroBatch*> batches_of(const Plan& plan, int rank);

/// Raises InputError unless a live run can execute these plans. `names` are their files, for
/// messages; it may be empty.
void check_live_plans(const std::vector<Plan>& plans, const std::vector<std::string>& names);

}  // namespace stepsim
