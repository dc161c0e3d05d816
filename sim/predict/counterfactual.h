#pragma once

namespace stepsim {

/// One thing that is different in a counterfactual run, all else being the same.
enum class Change {
  FreeCommunication,  ///< Collectives take no time.
  Balanced,           ///< Every rank has the mean of the ranks' compute times, each step.
  EqualRanks,         ///< No rank is slow.
  MedianRank,         ///< One rank has the median load of the ranks, each step.
  NoInterference,
  OneBucket,
  NoData,       ///< Loading and collation take no time.
  NoNewShapes,  ///< Every shape is known from the start.
  NoUnitHost,   ///< The host spends no time on the units of sharded training.
  NoLaunches    ///< The host launches kernels, hooks and collectives in no time.
};

/// How a run differs from what its scenario says; blame() compares such runs with the real one.
struct Counterfactual {
  Change change = Change::Balanced;
  int rank = -1;  ///< Change::MedianRank: which one.
};

}  // namespace stepsim
