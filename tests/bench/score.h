#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/bench/kernel_tables.h"

namespace stepsim::bench {

/// A prediction of a held-out row and what was measured, both in seconds.
struct Predicted {
  double predicted = 0;
  double measured = 0;
};

/// Errors in percent, each the mean over the series of a group.
struct Score {
  std::size_t rows = 0;
  double mape = 0;
  double p95 = 0;
  double bias = 0;
};

/// As INDEX.md, "Scores": per series, then the plain mean. Series without rows do not count.
[[nodiscard]] Score score(const std::vector<std::vector<Predicted>>& series);

/// fold(x) of INDEX.md, 0 to 4.
[[nodiscard]] int fold(std::int64_t x);

/// Which rows a fit may see, and which it is scored on.
struct Part {
  std::vector<bool> train;  ///< [row]
  std::vector<bool> test;   ///< [row]
};

/// The parts of a split of INDEX.md for a series of token counts, ascending; each test row is in
/// one part. Names: "scattered", "blocks", "beyond-2x", "beyond-4x", "sparse-33", "sparse-64".
[[nodiscard]] std::vector<Part> token_parts(const std::string& split,
                                            const std::vector<std::int64_t>& tokens);

/// The folds 0 to 4 of "scattered" for rows with these fold values.
[[nodiscard]] std::vector<Part> fold_parts(const std::vector<int>& folds);

/// One part: rows of `train` against all others.
[[nodiscard]] Part rest_part(std::vector<bool> train);

/// Prints table lines: our error beside the best of the bars of that file, group and split.
class Report {
 public:
  explicit Report(std::vector<Bar> bars);

  /// `path`: the table; its bars are those of the same ending. A score without rows has no line.
  void add(const std::string& path,
           const std::string& group,
           const std::string& split,
           const Score& ours,
           const std::string& form);
  [[nodiscard]] int behind() const { return behind_; }
  [[nodiscard]] int compared() const { return compared_; }

 private:
  std::vector<Bar> bars_;
  int behind_ = 0;
  int compared_ = 0;
};

}  // namespace stepsim::bench
