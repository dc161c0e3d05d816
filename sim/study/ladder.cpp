#include "sim/study/ladder.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <variant>

#include <fmt/core.h>

#include "costmodel/base/index.h"
#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "sim/predict/batch_plan.h"
#include "sim/predict/predict.h"
#include "sim/predict/step_cost.h"

namespace stepsim {
namespace {

/// A batch before a collator pads it to a multiple or to a rung.
struct FormedBatch {
  std::int64_t samples = 0;
  std::int64_t length = 0;
  std::int64_t useful_tokens = 0;
};

/// [rank][micro-batch] the batches of the steps that every rank has.
using FormedEpoch = std::vector<std::vector<FormedBatch>>;

/// The seconds of a batch of so many samples padded to a length.
using BatchPrice = std::function<double(std::int64_t samples, std::int64_t length)>;

/// A way to pad.
struct Padding {
  std::int64_t multiple_of = 1;
  std::vector<std::int64_t> rungs = {};  ///< In its place.

  [[nodiscard]] std::int64_t of(std::int64_t length) const {
    return rungs.empty() ? padded_to_multiple(length, multiple_of) : padded_to_rung(length, rungs);
  }
};

/// Why the batches of a policy have no length to choose; else empty.
std::string why_unpadded(const BatchingPolicy& policy) {
  if (policy.played() != nullptr) {
    return "it plays the batches of a file as they are";
  }
  if (policy.is_varlen()) {
    return "attention = \"varlen\" pads nothing";
  }
  if (policy.chooses_padding()) {
    return policy.kind().name + " chooses by itself what it pads to";
  }
  return policy.row_length() > 0
             ? fmt::format("its samples fill rows of {} tokens", policy.row_length())
             : "";
}

FormedEpoch formed_epoch(const BatchingPolicy& unpadded,
                         const PlannedData& planned,
                         int micro_batches) {
  const EpochPlan& epoch = planned.first_epoch;
  std::size_t fewest = epoch.batches.front().size();
  for (const Batches& batches : epoch.batches) {
    fewest = std::min(fewest, batches.size());
  }
  const std::size_t kept = fewest / at(micro_batches) * at(micro_batches);
  return mapped(epoch.batches, [&](const Batches& batches) {
    std::vector<FormedBatch> formed;
    for (std::size_t i = 0; i < kept; ++i) {
      const std::vector<Piece> pieces = epoch.pieces_of(batches[i], planned.lengths);
      const std::int64_t longest = max_of(pieces, &Piece::length, std::int64_t{0});
      formed.push_back(
          {std::ssize(pieces), unpadded.padded_length(longest), sum_of(pieces, &Piece::length)});
    }
    return formed;
  });
}

/// Plays an epoch: what it computes, and which shapes its ranks meet first.
class EpochPlayer {
 public:
  EpochPlayer(const FormedEpoch& epoch,
              int micro_batches,
              const BatchPrice& price,
              const LadderOptions& options)
      : epoch_(epoch), micro_batches_(at(micro_batches)), price_(price), options_(options) {}

  /// All but the predicted times. Raises InputError: a batch is longer than all rungs.
  [[nodiscard]] PaddedEpoch padded(const Padding& padding) const {
    PaddedEpoch result;
    std::set<std::int64_t> lengths;
    std::set<Shape> shapes;
    std::vector<std::set<Shape>> of_rank(epoch_.size());
    std::int64_t useful = 0;
    std::int64_t all = 0;
    for (std::size_t begin = 0; begin < epoch_.front().size(); begin += micro_batches_) {
      double slowest = 0;
      std::int64_t most_new = 0;
      for (std::size_t rank = 0; rank < epoch_.size(); ++rank) {
        double compute = 0;
        std::int64_t fresh = 0;
        for (std::size_t i = begin; i < begin + micro_batches_; ++i) {
          const FormedBatch& batch = epoch_[rank][i];
          const std::int64_t length = padding.of(batch.length);
          const Shape shape = shape_of(batch.samples, length);
          lengths.insert(length);
          shapes.insert(shape);
          fresh += of_rank[rank].insert(shape).second ? 1 : 0;
          compute += price_(batch.samples, length);
          useful += batch.useful_tokens;
          all += batch.samples * length;
        }
        slowest = std::max(slowest, compute);
        most_new = std::max(most_new, fresh);
      }
      result.compute_seconds += slowest;
      result.shape_seconds += static_cast<double>(most_new) * options_.shape_seconds;
    }
    result.rungs = padding.rungs;
    result.lengths = std::ssize(lengths);
    result.shapes = std::ssize(shapes);
    result.shapes_per_rank =
        static_cast<double>(sum_of(of_rank, [](const auto& met) { return met.size(); })) /
        static_cast<double>(epoch_.size());
    result.padding_ratio = all > 0 ? 1 - static_cast<double>(useful) / static_cast<double>(all) : 0;
    return result;
  }

 private:
  using Shape = std::pair<std::int64_t, std::int64_t>;

  [[nodiscard]] Shape shape_of(std::int64_t samples, std::int64_t length) const {
    return {options_.key == ShapeKey::Length ? 0 : samples, length};
  }

  const FormedEpoch& epoch_;
  std::size_t micro_batches_;
  const BatchPrice& price_;
  const LadderOptions& options_;
};

/// [step] the rank that takes longest while no batch is padded beyond its longest sample.
std::vector<std::size_t> slowest_ranks(const FormedEpoch& epoch,
                                       std::size_t micro_batches,
                                       const BatchPrice& price) {
  std::vector<std::size_t> slowest;
  for (std::size_t begin = 0; begin < epoch.front().size(); begin += micro_batches) {
    const auto seconds = mapped(epoch, [&](const std::vector<FormedBatch>& batches) {
      double sum = 0;
      for (std::size_t i = begin; i < begin + micro_batches; ++i) {
        sum += price(batches[i].samples, batches[i].length);
      }
      return sum;
    });
    slowest.push_back(at(std::ranges::max_element(seconds) - seconds.begin()));
  }
  return slowest;
}

/// The batches of the epoch by samples and length, counted where `counts(rank, batch)`, and one of
/// the longest sample of the data.
template <typename Counts>
std::vector<LadderBatch> ladder_batches(const FormedEpoch& epoch,
                                        std::int64_t longest,
                                        Counts counts) {
  std::map<std::pair<std::int64_t, std::int64_t>, std::int64_t> kinds;
  std::int64_t reached = 0;
  for (std::size_t rank = 0; rank < epoch.size(); ++rank) {
    for (std::size_t i = 0; i < epoch[rank].size(); ++i) {
      const FormedBatch& batch = epoch[rank][i];
      kinds[{batch.samples, batch.length}] += counts(rank, i) ? 1 : 0;
      reached = std::max(reached, batch.length);
    }
  }
  if (reached < longest) {
    kinds.emplace(std::pair(std::int64_t{1}, longest), 0);
  }
  return mapped(kinds, [](const auto& entry) {
    return LadderBatch{entry.first.first, entry.first.second, entry.second};
  });
}

/// The row of least predicted step that can be used; of equal ones that with the least padding.
std::optional<std::size_t> best_row(const std::vector<PaddedEpoch>& rows) {
  const auto order = [](const PaddedEpoch& row) {
    return std::pair(row.step_ms, row.padding_ratio);
  };
  std::optional<std::size_t> best;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].refused.empty() && (!best || order(rows[i]) < order(rows[*best]))) {
      best = i;
    }
  }
  return best;
}

/// One policy's epoch, and all that its rows have in common.
class PolicyEpoch {
 public:
  PolicyEpoch(const Job& job, const LadderOptions& options)
      : job_(job.padded(1, {})),
        own_(padding_of(job.policy())),
        planned_(
            job_.stages().epoch(job_.scenario(),
                                job_.policy(),
                                planning_cost(job_.scenario(), job_.policy(), *job_.profile()))),
        formed_(formed_epoch(job_.policy(), *planned_, micro_batches())),
        price_(price_of(
            step_cost(with_attention_of(job_.policy(), job_.scenario()), *job_.profile()))),
        shapes_(formed_, micro_batches(), price_, options) {
    find_batches();
    problem_.price = price_;
    problem_.shape_seconds = options.shape_seconds;
    problem_.key = options.key;
    problem_.step = options.step;
    Scenario scenario = job_.scenario();
    if (scenario.model.max_length > 0) {
      problem_.longest_allowed = scenario.model.max_length;
    }
    scenario.steps = static_cast<int>(std::min<std::int64_t>(steps(), kMaxSteps));
    scenario.warmup_steps = 0;
    scenario.new_shapes.mechanisms.emplace();  // The rows count them.
    job_ = Job(std::make_shared<const Scenario>(std::move(scenario)),
               std::make_shared<const BatchingPolicy>(job_.policy()),
               job_.profile(),
               job_.stages());
  }
  PolicyEpoch(const PolicyEpoch&) = delete;
  PolicyEpoch& operator=(const PolicyEpoch&) = delete;

  [[nodiscard]] std::int64_t steps() const { return std::ssize(formed_.front()) / micro_batches(); }

  [[nodiscard]] std::int64_t batch_sizes() const {
    std::set<std::int64_t> sizes;
    for (const std::vector<FormedBatch>& batches : formed_) {
      for (const FormedBatch& batch : batches) {
        sizes.insert(batch.samples);
      }
    }
    return std::ssize(sizes);
  }

  /// Raises InputError: the rule does not fit the data or the model, or the profile cannot price
  /// it.
  [[nodiscard]] PaddedEpoch row(PaddingRule rule, std::int64_t number) const {
    switch (rule) {
      case PaddingRule::Longest:
        return predicted({});
      case PaddingRule::Own:
        return predicted(own_);
      case PaddingRule::Multiple:
        return predicted({number});
      case PaddingRule::Rungs:
        return best_ladder(number);
      case PaddingRule::Optimum:
        break;
    }
    return best_ladder(std::nullopt);
  }

 private:
  [[nodiscard]] static BatchPrice price_of(const StepCost& cost) {
    return [cost](std::int64_t samples, std::int64_t length) {
      return static_cast<double>(cost({samples, length})) * 1e-9;
    };
  }

  [[nodiscard]] int micro_batches() const { return job_.scenario().ddp.accumulation_steps; }

  [[nodiscard]] static Padding padding_of(const BatchingPolicy& policy) {
    return {policy.pad_to_multiple_of(), policy.pad_to_lengths()};
  }

  /// 0 where the policy cuts samples.
  [[nodiscard]] std::int64_t longest_sample() const {
    return job_.policy().cuts() ? 0 : *std::ranges::max_element(planned_->lengths);
  }

  void find_batches() {
    const std::size_t of_step = at(micro_batches());
    const std::vector<std::size_t> slowest = slowest_ranks(formed_, of_step, price_);
    const auto waited_for = [&](std::size_t rank, std::size_t i) {
      return slowest[i / of_step] == rank;
    };
    const auto any = [](std::size_t, std::size_t) { return true; };
    batches_ = {ladder_batches(formed_, longest_sample(), waited_for),
                ladder_batches(formed_, longest_sample(), any)};
  }

  /// The fewest shapes that a ladder can make.
  [[nodiscard]] std::int64_t fewest_shapes() const {
    return problem_.key == ShapeKey::Length ? 1 : batch_sizes();
  }

  /// Ladders of at most so many rungs with what the epoch computes and pays for shapes, in seconds.
  [[nodiscard]] std::map<std::vector<std::int64_t>, double> candidates(
      std::optional<std::int64_t> rungs) const {
    constexpr double kHeaviest = 0x1p40;
    LadderProblem problem = problem_;
    problem.most_rungs = rungs;
    std::map<std::vector<std::int64_t>, double> tried;
    for (const std::vector<LadderBatch>& batches : batches_) {
      problem.batches = batches;
      PaddedEpoch padded;
      double weight = 1.0 / job_.scenario().ranks;
      do {
        problem.shape_seconds = weight * problem_.shape_seconds;
        padded = shapes_.padded({1, optimal_length_ladder(problem).rungs});
        tried[padded.rungs] = padded.compute_seconds + padded.shape_seconds;
        weight *= 2;
      } while (padded.shapes > fewest_shapes() && weight < kHeaviest);
    }
    return tried;
  }

  /// The ladder of at most so many rungs with the least predicted step.
  [[nodiscard]] PaddedEpoch best_ladder(std::optional<std::int64_t> rungs) const {
    constexpr std::size_t kPredicted = 6;
    std::vector<std::pair<double, std::vector<std::int64_t>>> tried;
    for (const auto& [ladder, seconds] : candidates(rungs)) {
      tried.emplace_back(seconds, ladder);
    }
    std::ranges::sort(tried);
    tried.resize(std::min(tried.size(), kPredicted));
    return least_step(mapped(tried, [&](const auto& one) { return predicted({1, one.second}); }));
  }

  /// The row of least predicted step; one that does not fit into memory only where none does.
  [[nodiscard]] static PaddedEpoch least_step(const std::vector<PaddedEpoch>& rows) {
    return rows[best_row(rows).value_or(0)];
  }

  [[nodiscard]] PaddedEpoch predicted(const Padding& padding) const {
    PaddedEpoch row = shapes_.padded(padding);
    PredictOptions without_noise;
    without_noise.noise_runs = 0;
    without_noise.rows = KeptRows::None;
    const Prediction prediction =
        predict(job_.padded(padding.multiple_of, padding.rungs), without_noise);
    row.steady_step_ms = prediction.summary.step_time_ms.mean;
    row.step_ms = row.steady_step_ms + row.shape_seconds * 1e3 / static_cast<double>(steps());
    row.notes = prediction.notes;
    std::erase_if(row.notes,
                  [](const Note& note) { return std::holds_alternative<OutOfMemory>(note); });
    if (const auto& out = prediction.out_of_memory) {
      row.refused = fmt::format("out of memory on rank {} in step {}", out->rank, out->step);
    }
    return row;
  }

  Job job_;  ///< Over exactly one epoch, without padding of its own.
  Padding own_;
  std::shared_ptr<const PlannedData> planned_;
  FormedEpoch formed_;
  BatchPrice price_;
  EpochPlayer shapes_;
  /// Two ways to count: what steps wait for, and all. Neither is what the epoch takes: padding may
  /// make another rank the slowest, and most ranks' batches take no time of their own.
  std::vector<std::vector<LadderBatch>> batches_;
  LadderProblem problem_;  ///< Without batches.
};

/// A row to fill in.
struct WantedRow {
  PaddingRule rule;
  std::int64_t number;
};

std::vector<WantedRow> wanted_rows(const BatchingPolicy& policy, const LadderOptions& options) {
  std::vector<WantedRow> wanted = {{PaddingRule::Longest, 0}};
  if (policy.pad_to_multiple_of() > 1 || !policy.pad_to_lengths().empty()) {
    wanted.push_back({PaddingRule::Own, policy.pad_to_multiple_of()});
  }
  for (const std::int64_t multiple : options.multiples) {
    wanted.push_back({PaddingRule::Multiple, multiple});
  }
  for (const std::int64_t rungs : options.rungs) {
    wanted.push_back({PaddingRule::Rungs, rungs});
  }
  wanted.push_back({PaddingRule::Optimum, 0});
  return wanted;
}

/// Raises InputError: the batches cannot be priced even without padding.
PaddedEpoch filled_in(const PolicyEpoch& epoch, const WantedRow& wanted) {
  PaddedEpoch row;
  try {
    row = epoch.row(wanted.rule, wanted.number);
  } catch (const InputError& error) {
    if (wanted.rule == PaddingRule::Longest) {
      throw;
    }
    row.refused = error.what();
  }
  row.rule = wanted.rule;
  row.number = wanted.number;
  return row;
}

/// The last row, of any number of rungs, is no worse than those of limited numbers.
void take_better_ladder(std::vector<PaddedEpoch>& rows) {
  PaddedEpoch& optimum = rows.back();
  for (const PaddedEpoch& row : rows) {
    const bool better = !optimum.refused.empty() || row.step_ms < optimum.step_ms;
    if (row.rule == PaddingRule::Rungs && row.refused.empty() && better) {
      optimum = row;
      optimum.rule = PaddingRule::Optimum;
      optimum.number = 0;
    }
  }
}

}  // namespace

LadderStudy study_ladders(const Job& job, const LadderOptions& options) {
  LadderStudy study;
  study.policy = job.policy().name();
  study.skipped = why_unpadded(job.policy());
  if (!study.skipped.empty()) {
    return study;
  }
  const PolicyEpoch epoch(job, options);
  study.steps = epoch.steps();
  study.batch_sizes = epoch.batch_sizes();
  if (study.steps == 0) {
    study.skipped = "its epoch has not one whole step";
    return study;
  }
  const std::vector<WantedRow> wanted = wanted_rows(job.policy(), options);
  for (const WantedRow& row : wanted) {
    study.rows.push_back(filled_in(epoch, row));
    if (row.rule == PaddingRule::Optimum) {
      take_better_ladder(study.rows);
    }
    if (options.on_progress) {
      options.on_progress(static_cast<double>(study.rows.size()) /
                          static_cast<double>(wanted.size()));
    }
  }
  study.best = best_row(study.rows);
  return study;
}

}  // namespace stepsim
