#include "sim/batching/algorithms/length_ladder.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "costmodel/base/index.h"
#include "costmodel/base/input_error.h"

namespace stepsim {
namespace {

constexpr double kNoLadder = std::numeric_limits<double>::infinity();

/// Raises InputError: see optimal_length_ladder().
void check_ladder_problem(const LadderProblem& problem) {
  if (problem.batches.empty()) {
    throw InputError("no batches to make a ladder of lengths for");
  }
  if (problem.batches.size() > kMostLadderBatches) {
    throw InputError("{} distinct shapes are too many for a ladder of lengths, which takes {}",
                     problem.batches.size(),
                     kMostLadderBatches);
  }
  if (!(problem.shape_seconds >= 0) || !std::isfinite(problem.shape_seconds)) {
    throw InputError("a new shape cannot cost {} s", problem.shape_seconds);
  }
  if (problem.most_rungs.value_or(1) < 1) {
    throw InputError("a ladder of {} lengths holds no batch; expected 1 or more",
                     *problem.most_rungs);
  }
  if (problem.step < 1) {
    throw InputError("lengths cannot be multiples of {}; expected 1 or more", problem.step);
  }
  for (const LadderBatch& batch : problem.batches) {
    if (batch.samples < 1 || batch.length < 1 || batch.count < 0) {
      throw InputError("{} batches of {} samples of {} tokens: expected samples and tokens",
                       batch.count,
                       batch.samples,
                       batch.length);
    }
    if (batch.length > problem.longest_allowed.value_or(batch.length)) {
      throw InputError("a batch is {} tokens long, the longest length allowed is {}",
                       batch.length,
                       *problem.longest_allowed);
    }
  }
}

/// The batches of one length and number of samples.
struct LadderCell {
  std::uint32_t length = 0;   ///< Index into the lengths.
  std::uint32_t samples = 0;  ///< Index into the numbers of samples.
  std::int64_t count = 0;
};

class LadderSearch {
 public:
  explicit LadderSearch(const LadderProblem& problem) : problem_(problem) {
    collect_lengths();
    collect_cells();
    price_.resize(samples_.size());
    seen_.resize(samples_.size(), 0);
  }

  /// The best ladder of any number of rungs: the first length of each rung, from the last one down.
  [[nodiscard]] std::vector<std::size_t> free_cuts() {
    std::vector<double> best(lengths_.size());
    std::vector<std::uint32_t> first(lengths_.size());
    for (std::size_t end = 0; end < lengths_.size(); ++end) {
      best[end] = kNoLadder;
      for_each_rung(end, [&](std::size_t begin, double compute, std::int64_t shapes) {
        const double below = begin > 0 ? best[begin - 1] : 0;
        if (const double sum = below + cost(compute, shapes); sum < best[end]) {
          best[end] = sum;
          first[end] = static_cast<std::uint32_t>(begin);
        }
      });
    }
    std::vector<std::size_t> cuts;
    for (std::size_t end = lengths_.size(); end > 0; end = cuts.back()) {
      cuts.push_back(first[end - 1]);
    }
    return cuts;
  }

  /// Returns the same for at most `rungs` rungs.
  [[nodiscard]] std::vector<std::size_t> limited_cuts(std::size_t rungs) {
    // [length * rungs + r]: the best ladder up to this length of exactly r + 1 rungs.
    std::vector<double> best(lengths_.size() * rungs, kNoLadder);
    std::vector<std::uint32_t> first(best.size());
    for (std::size_t end = 0; end < lengths_.size(); ++end) {
      for_each_rung(end, [&](std::size_t begin, double compute, std::int64_t shapes) {
        const double here = cost(compute, shapes);
        const auto take = [&](std::size_t r, double below) {
          if (below + here < best[end * rungs + r]) {
            best[end * rungs + r] = below + here;
            first[end * rungs + r] = static_cast<std::uint32_t>(begin);
          }
        };
        if (begin == 0) {
          take(0, 0);
          return;
        }
        for (std::size_t r = 1; r < std::min(rungs, begin + 1); ++r) {
          take(r, best[(begin - 1) * rungs + r - 1]);
        }
      });
    }
    const auto last = best.end() - static_cast<std::ptrdiff_t>(rungs);
    auto r = static_cast<std::size_t>(std::min_element(last, best.end()) - last);
    std::vector<std::size_t> cuts;
    for (std::size_t end = lengths_.size(); end > 0; end = cuts.back(), --r) {
      cuts.push_back(first[(end - 1) * rungs + r]);
    }
    return cuts;
  }

  [[nodiscard]] LengthLadder ladder(const std::vector<std::size_t>& cuts) {
    LengthLadder result;
    std::size_t end = lengths_.size();
    for (const std::size_t cut : cuts) {
      result.rungs.push_back(lengths_[end - 1]);
      for_each_rung(end - 1, [&](std::size_t begin, double compute, std::int64_t shapes) {
        result.compute_seconds += begin == cut ? compute : 0;
        result.shapes += begin == cut ? shapes : 0;
      });
      end = cut;
    }
    std::ranges::reverse(result.rungs);
    result.shape_seconds = cost(0, result.shapes);
    return result;
  }

  [[nodiscard]] std::size_t lengths() const { return lengths_.size(); }

 private:
  [[nodiscard]] std::int64_t rounded(std::int64_t length) const {
    const std::int64_t multiple = (length + problem_.step - 1) / problem_.step * problem_.step;
    return std::min(multiple, problem_.longest_allowed.value_or(multiple));
  }

  [[nodiscard]] double cost(double compute, std::int64_t shapes) const {
    return compute + static_cast<double>(shapes) * problem_.shape_seconds;
  }

  void collect_lengths() {
    const auto collect = [&](auto of, std::vector<std::int64_t>& values) {
      for (const LadderBatch& batch : problem_.batches) {
        values.push_back(of(batch));
      }
      std::ranges::sort(values);
      values.erase(std::unique(values.begin(), values.end()), values.end());
      values.shrink_to_fit();
    };
    collect([&](const LadderBatch& batch) { return rounded(batch.length); }, lengths_);
    collect([](const LadderBatch& batch) { return batch.samples; }, samples_);
    if (lengths_.size() > kMostLadderLengths) {
      throw InputError(
          "{} distinct lengths are too many for a ladder of lengths, which takes {}; restrict the "
          "ladder to multiples of a larger step",
          lengths_.size(),
          kMostLadderLengths);
    }
  }

  void collect_cells() {
    const auto index = [](const std::vector<std::int64_t>& values, std::int64_t value) {
      return static_cast<std::uint32_t>(std::ranges::lower_bound(values, value) - values.begin());
    };
    cells_.reserve(problem_.batches.size());
    for (const LadderBatch& batch : problem_.batches) {
      cells_.push_back(
          {index(lengths_, rounded(batch.length)), index(samples_, batch.samples), batch.count});
    }
    std::ranges::sort(cells_, [](const LadderCell& a, const LadderCell& b) {
      return std::tie(a.length, a.samples) < std::tie(b.length, b.samples);
    });
    ends_.assign(lengths_.size(), 0);
    for (std::size_t i = 0; i < cells_.size(); ++i) {
      ends_[cells_[i].length] = i + 1;
    }
  }

  /// Calls `visit(begin, compute seconds, shapes)` for the rungs that hold the lengths begin ..
  /// end, begin from `end` down to 0.
  template <typename Visit>
  void for_each_rung(std::size_t end, Visit visit) {
    ++now_;
    const bool by_length = problem_.key == ShapeKey::Length;
    double compute = 0;
    std::int64_t numbers_of_samples = 0;
    std::size_t cell = ends_[end];
    for (std::size_t begin = end + 1; begin-- > 0;) {
      for (const std::size_t first = begin > 0 ? ends_[begin - 1] : 0; cell > first;) {
        const LadderCell& batches = cells_[--cell];
        if (seen_[batches.samples] != now_) {
          seen_[batches.samples] = now_;
          price_[batches.samples] = problem_.price(samples_[batches.samples], lengths_[end]);
          ++numbers_of_samples;
        }
        compute += static_cast<double>(batches.count) * price_[batches.samples];
      }
      visit(begin, compute, by_length ? std::int64_t{1} : numbers_of_samples);
    }
  }

  const LadderProblem& problem_;
  std::vector<std::int64_t> lengths_;  ///< Ascending: the possible rungs.
  std::vector<std::int64_t> samples_;  ///< Ascending: the numbers of samples.
  std::vector<LadderCell> cells_;      ///< By length, then samples.
  std::vector<std::size_t> ends_;      ///< [length] index behind its last cell.
  std::vector<double> price_;          ///< [samples] at the rung in hand.
  std::vector<std::uint64_t> seen_;    ///< [samples] the last rung in hand that had a price.
  std::uint64_t now_ = 0;              ///< The rung in hand.
};

}  // namespace

LengthLadder optimal_length_ladder(const LadderProblem& problem) {
  check_ladder_problem(problem);
  LadderSearch search(problem);
  const std::vector<std::size_t> free = search.free_cuts();
  const std::size_t most = problem.most_rungs ? at(*problem.most_rungs) : free.size();
  if (free.size() <= most) {
    return search.ladder(free);
  }
  if (search.lengths() * most > kMostLadderCells) {
    throw InputError(
        "{} lengths for at most {} rungs are too many; restrict the ladder to multiples of a "
        "larger step",
        search.lengths(),
        most);
  }
  return search.ladder(search.limited_cuts(most));
}

}  // namespace stepsim
