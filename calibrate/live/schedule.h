#pragma once

#include <vector>

#include "costmodel/records/plan_file.h"

namespace stepsim {

/// Steps [begin, end) of one plan, run in a row.
struct Block {
  std::size_t plan = 0;
  int begin = 0;
  int end = 0;
  bool operator==(const Block&) const = default;
};

/// The rounds of one repeat: in each, every plan that has steps left runs its next block. The order
/// of the plans rotates from round to round and repeat to repeat, so that no plan always follows
/// the same one.
[[nodiscard]] std::vector<std::vector<Block>> rounds_of(const std::vector<int>& steps,
                                                        int block,
                                                        int repeat);

/// A rank's micro-batches of one plan by step.
/// Raises InputError: not exactly one micro-batch in every step and rank.
[[nodiscard]] std::vector<const MicroBatch*> batches_of(const Plan& plan, int rank);

/// What a live run needs of its plans. `names` are their files, for messages; may be empty.
/// Raises InputError.
void check_live_plans(const std::vector<Plan>& plans, const std::vector<std::string>& names);

}  // namespace stepsim
