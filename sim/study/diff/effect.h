#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace stepsim {

/// Where an observed step stands in a comparison of recorded runs.
struct DiffMark {
  bool after = false;
  std::size_t run = 0;           ///< Of both sides together, in order of time.
  double time = 0;               ///< Its start, on a clock of its run.
  std::size_t group = 0;         ///< Steps of one group ran the same batches.
  std::vector<double> features;  ///< Of its batches; as many in all steps, or none.
};

/// What AFTER takes more than BEFORE for the same batches.
struct Effect {
  double before = 0;   ///< Mean of the compared steps of BEFORE.
  double change = 0;   ///< Same unit.
  double error = 0;    ///< Standard error of the change.
  double freedom = 1;  ///< Degrees of freedom of that error.

  /// The interval that is wrong with this probability.
  [[nodiscard]] std::pair<double, double> interval(double alarm) const;
  /// Whether that interval is without 0.
  [[nodiscard]] bool is_real(double alarm) const;
  /// Whether there was anything before; less is rounding.
  [[nodiscard]] bool has_before() const { return before > 1e-6; }
  /// Returns a value of the change as a part of `before`, or 0 where that is nothing.
  [[nodiscard]] double relative(double value) const { return has_before() ? value / before : 0; }
};

/// The differences between two sides of steps, at equal batches, with errors that hold for steps
/// that depend on one another.
///
/// Each time is explained by the step's group and features, the same on both sides, and by the
/// side, by least squares, in which times further from the fit than two deviations (by the median)
/// count as that far (Huber 1964, Ann. Math. Statist. 35, 73): few long steps would else decide.
/// So the change is a weighted sum of the times (Frisch and Waugh 1933,
/// Econometrica 1, 387: what the side has beside groups and features). Its error comes of that
/// sum's parts over blocks of steps that follow one another, which may depend on each other within
/// a block (Liang and Zeger 1986, Biometrika 73, 13), scaled so that it is right in the mean for
/// independent times, and with the degrees of freedom of Student's distribution that this leaves
/// (Bell and McCaffrey 2002, Survey Methodology 28, 169). For steps of equal batches that is
/// Welch's test on batch means.
///
/// Where the sides ran by turns, a block has steps of both, and what the machine drifts cancels.
/// Where they ran one behind the other it does not: the error gains 4 times what the means of a
/// run's blocks vary by beyond the scatter of its steps (in squares). That is how far the means of
/// two adjacent runs lie apart where the machine's speed walks at random: of n steps of variance v,
/// blocks vary by n v / 6 and the runs' means by 2 n v / 3. The degrees of freedom are then those
/// of the sum (Satterthwaite 1946, Biometrics Bulletin 2, 110). Where both sides have several runs,
/// the runs' own means tell it, and the larger of this and the error of blocks counts.
class StepComparison {
 public:
  /// `by_turns`: all times are of one clock, and the sides took turns. Raises InputError: fewer
  /// than kFewestCompared steps on a side.
  StepComparison(std::vector<DiffMark> marks, bool by_turns);

  /// The change of a time. [step] in the order of the marks. Nothing where groups and features
  /// tell the sides apart by themselves.
  [[nodiscard]] std::optional<Effect> effect(std::span<const double> times) const;

  /// The change of the steps of one part, each of which `kept` says; nothing where a side has too
  /// few of them.
  [[nodiscard]] std::optional<StepComparison> part(const std::vector<bool>& kept) const;
  /// What part() keeps of a column.
  [[nodiscard]] std::vector<double> part_of(std::span<const double> times) const;

  /// [step] what the fit leaves of the times.
  [[nodiscard]] std::vector<double> residuals(std::span<const double> times) const;

 private:
  /// Times whose distance from the fit is limited, and the share of those that were within.
  struct ClippedTimes {
    std::vector<double> times;
    double kept = 1;
  };

  /// What the squares of the blocks' sums are to be multiplied by to be right in the mean, and how
  /// many degrees of freedom they have, for independent times: steps of the same batches in two
  /// blocks make these depend on each other.
  struct BlockSums {
    double scale = 1;
    double freedom = 1;
  };

  StepComparison() = default;
  void prepare();
  void make_blocks();
  [[nodiscard]] std::vector<double> within(std::span<const double> values) const;
  [[nodiscard]] std::vector<double> without_features(std::vector<double> values) const;
  [[nodiscard]] ClippedTimes clip(std::span<const double> times) const;
  [[nodiscard]] BlockSums block_sums() const;
  [[nodiscard]] double drift(std::span<const double> residuals) const;
  [[nodiscard]] std::optional<std::pair<double, double>> error_of_runs(
      std::span<const double> residuals) const;

  std::vector<DiffMark> marks_;
  bool by_turns_ = false;
  std::vector<std::size_t> kept_;          ///< Of the steps that part() chose from.
  std::vector<std::vector<double>> axes_;  ///< Features within groups, orthonormal.
  std::vector<double> side_;               ///< What is left of the side, [step].
  double side_square_ = 0;
  std::vector<std::size_t> order_;  ///< Steps by run and time; by turns: by time.
  std::vector<std::size_t> block_;  ///< [step]
  std::size_t blocks_ = 0;
  std::size_t group_count_ = 0;
  std::size_t runs_ = 0;
};

/// So few steady steps of a side are refused.
inline constexpr std::size_t kFewestCompared = 12;

}  // namespace stepsim
