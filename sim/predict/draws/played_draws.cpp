#include "sim/predict/draws/played_draws.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <utility>

#include "costmodel/base/index.h"
#include "costmodel/base/parallel.h"
#include "sim/predict/draws/lockstep_player.h"
#include "sim/predict/step_simulator.h"

namespace stepsim {
namespace {

/// Draws that are played at once, whatever the number of threads.
constexpr std::size_t kTogether = 10;

FactorRange around(FactorRange range, double factor) {
  return {std::min(range.least, factor), std::max(range.most, factor)};
}

/// Between which factors the draws and the jitter of a run lie.
DrawnRanges ranges_of(const Run& run, const std::vector<Draw>& draws) {
  DrawnRanges ranges;
  ranges.groups.resize(run.pricer().groups().size());
  FactorRange common;
  for (const Draw& draw : draws) {
    for (const DrawnCosts& costs : draw) {
      common = around(common, costs.common);
      ranges.host = around(ranges.host, costs.factors.host);
      for (std::size_t g = 0; g < costs.factors.group.size(); ++g) {
        ranges.groups[g] = around(ranges.groups[g], costs.factors.group[g]);
      }
    }
  }
  FactorRange ranks;
  for (int r = 0; r < run.scenario().ranks; ++r) {
    ranks = around(ranks, run.loads().rank_factor[at(r)]);
  }
  ranges.slowness = {common.least * ranks.least * run.loads().jitter.least(),
                     common.most * ranks.most * run.loads().jitter.most()};
  for (std::size_t i = 0; i < run.batches(); ++i) {
    ranges.load = around(ranges.load, run.loads().batch_factor[i]);
  }
  if (run.loads().cores > 0) {
    ranges.load.most *= std::max(1.0, run.scenario().placement.fullest() / run.loads().cores);
  }
  return ranges;
}

/// Draws that were played at once.
template <typename Player>
PlayedDraws played_by(Player& player, std::size_t runs) {
  PlayedDraws played;
  played.jitter.add(player.take_sums());
  played.longest_ms = player.longest_ms();
  for (std::size_t r = 0; r < runs; ++r) {
    played.mean_ms.push_back(player.mean_ms(r));
  }
  return played;
}

/// Parts of the draws that are played on several threads, and the progress of them all.
class Parts {
 public:
  Parts(std::size_t draws, std::size_t together, const ProgressCallback& on_progress)
      : draws_(draws),
        together_(together),
        played_((draws + together - 1) / together),
        on_progress_(on_progress) {}

  [[nodiscard]] std::size_t count() const { return played_.size(); }
  [[nodiscard]] std::size_t first(std::size_t part) const { return part * together_; }
  [[nodiscard]] std::span<const Draw> of(const std::vector<Draw>& draws, std::size_t part) const {
    return std::span(draws).subspan(first(part), std::min(together_, draws_ - first(part)));
  }
  /// Plays each part; `play` is given its number and a callback for how much of it is done.
  void play(int threads,
            const std::function<PlayedDraws(std::size_t, const ProgressCallback&)>& play) {
    parallel_for(count(), threads, [&](std::size_t part) {
      played_[part] = play(part, [&](double share) {
        if (on_progress_ && std::this_thread::get_id() == caller_) {
          on_progress_((static_cast<double>(done_) + share) / static_cast<double>(count()));
        }
      });
      ++done_;
    });
  }
  [[nodiscard]] PlayedDraws merged(std::size_t steps) {
    PlayedDraws all;
    all.mean_ms.resize(played_.front().mean_ms.size());
    all.jitter.reserve(steps * draws_);
    const auto append = [](std::vector<double>& to, const std::vector<double>& from) {
      to.insert(to.end(), from.begin(), from.end());
    };
    for (PlayedDraws& part : played_) {
      all.jitter.add(part.jitter.sums());
      append(all.longest_ms, part.longest_ms);
      for (std::size_t r = 0; r < all.mean_ms.size(); ++r) {
        append(all.mean_ms[r], part.mean_ms[r]);
      }
      part = {};
    }
    return all;
  }

 private:
  std::size_t draws_;
  std::size_t together_;
  std::vector<PlayedDraws> played_;  ///< [part]
  const ProgressCallback& on_progress_;
  std::thread::id caller_ = std::this_thread::get_id();
  std::atomic<std::size_t> done_{0};
};

PlayedDraws play_lanes(const Run& run,
                       const std::vector<Draw>& draws,
                       const std::vector<int>& steps,
                       int threads,
                       const ProgressCallback& on_progress) {
  const DrawnRanges ranges = ranges_of(run, draws);
  const std::size_t of_first = at(run.scenario().ranks);
  const std::size_t batches = run.batches();
  const FoldedSteps first(run, run.reduced().plain_steps().front(), 0, of_first, ranges);
  const FoldedSteps others(run, run.reduced().plain_steps().back(), of_first, batches, ranges);
  const std::size_t runs = draws.front().size();
  constexpr std::size_t kWorthThreads = 200'000;  // Steps of a rank: some milliseconds.
  const bool worth = steps.size() * of_first * draws.size() * runs >= kWorthThreads;
  Parts parts(draws.size(), kTogether, on_progress);
  parts.play(worth ? threads : 1, [&](std::size_t part, const ProgressCallback& on_share) {
    DrawPlayer player(
        run, first, others, steps, static_cast<int>(parts.first(part)), parts.of(draws, part));
    player.play([&](int step) { on_share(static_cast<double>(step) / run.scenario().steps); });
    return played_by(player, runs);
  });
  return parts.merged(steps.size());
}

/// Plays draws from number `first` on, one after another.
PlayedDraws play_one_by_one(Run& run,
                            std::span<const Draw> draws,
                            std::size_t first,
                            const ProgressCallback& on_progress) {
  PlayedDraws played;
  played.mean_ms.resize(draws.front().size());
  for (std::size_t d = 0; d < draws.size(); ++d) {
    for (std::size_t r = 0; r < draws[d].size(); ++r) {
      NoiseDraws noise(seed_of_draw(run.scenario().seed, first + d));
      StepSimulator simulator(run, draws[d][r].factors, draws[d][r].common, &noise);
      std::vector<double> steps;
      for (int step = 0; step < run.scenario().steps; ++step) {
        const StepTimeline timeline = simulator.next();
        if (step < run.scenario().warmup_steps) {
          continue;
        }
        steps.push_back(to_ms(step_time(timeline)));
        if (r == 0) {
          played.jitter.add(timeline);
        }
      }
      played.mean_ms[r].push_back(mean(steps));
      if (r == 0) {
        played.longest_ms.push_back(*std::ranges::max_element(steps));
      }
    }
    on_progress(static_cast<double>(d + 1) / static_cast<double>(draws.size()));
  }
  return played;
}

/// Each part has a run of its own: pricing and playing change it.
PlayedDraws play_engine(Run& run,
                        const std::vector<Draw>& draws,
                        int threads,
                        const ProgressCallback& on_progress) {
  Parts parts(draws.size(), kTogether, on_progress);
  const bool alone = threads == 1 || std::thread::hardware_concurrency() == 1;
  parts.play(threads, [&](std::size_t part, const ProgressCallback& on_share) {
    std::optional<Run> own;
    if (!alone) {
      own.emplace(run.job(), run.counterfactual());
    }
    return play_one_by_one(alone ? run : *own, parts.of(draws, part), parts.first(part), on_share);
  });
  return parts.merged(at(run.scenario().steps));
}

/// None: some of the draws cannot be played in lockstep.
std::optional<PlayedDraws> play_lockstep_lanes(Run& run,
                                               const std::vector<Draw>& draws,
                                               int threads,
                                               const ProgressCallback& on_progress) {
  // Clocks and work of a rank take about a kilobyte in each lane, and more where each kernel has a
  // time of its own or launches are counted. A loop over fewer lanes than four takes as long as one
  // over four.
  constexpr std::size_t kMemory = 200'000'000;
  const std::size_t of_noise = run.scenario().noise.op_jitter > 0
                                   ? 2 * sizeof(double) * run.pricer().ops_per_micro_batch() *
                                         at(run.scenario().ddp.accumulation_steps)
                                   : 0;
  const std::size_t of_lane =
      1000 + of_noise + sizeof(double) * at(run.reduced().engine_rules({}).queue_depth);
  const std::size_t of_memory =
      kMemory / (at(run.scenario().ranks) * draws.front().size() * of_lane);
  const std::size_t of_two_threads = (draws.size() + 1) / 2;
  Parts parts(draws.size(),
              std::clamp<std::size_t>(std::min(of_memory, of_two_threads), 4, 32),
              on_progress);
  const std::size_t runs = draws.front().size();
  std::vector<std::unique_ptr<LockstepPlayer>> players;
  for (std::size_t part = 0; part < parts.count(); ++part) {
    players.push_back(std::make_unique<LockstepPlayer>(
        run, static_cast<int>(parts.first(part)), parts.of(draws, part)));
  }
  std::atomic<bool> in_lockstep{true};
  parts.play(threads, [&](std::size_t part, const ProgressCallback& on_share) {
    const auto player = std::move(players[part]);
    if (!in_lockstep || !player->play([&](int step) {
          on_share(static_cast<double>(step) / run.scenario().steps);
        })) {
      in_lockstep = false;
      return PlayedDraws{};
    }
    return played_by(*player, runs);
  });
  return in_lockstep ? std::optional(parts.merged(at(run.scenario().steps))) : std::nullopt;
}

}  // namespace

void PlayedDraws::scale(double factor) {
  if (factor == 1) {
    return;
  }
  const auto multiply = [&](std::vector<double>& times) {
    std::ranges::for_each(times, [&](double& time) { time *= factor; });
  };
  jitter.scale(factor);
  multiply(longest_ms);
  std::ranges::for_each(mean_ms, multiply);
}

PlayedDraws play_draws(Run& run,
                       const std::vector<Draw>& draws,
                       const std::vector<int>& steps,
                       int threads,
                       const ProgressCallback& on_progress) {
  if (run.reduced().plain()) {
    return play_lanes(run, draws, steps, threads, on_progress);
  }
  if (run.reduced().draws_in_lockstep()) {
    if (auto played = play_lockstep_lanes(run, draws, threads, on_progress)) {
      return std::move(*played);
    }
  }
  return play_engine(run, draws, threads, on_progress);
}

}  // namespace stepsim
