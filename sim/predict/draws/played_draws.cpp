#include "sim/predict/draws/played_draws.h"

#include <algorithm>
#include <atomic>
#include <span>
#include <thread>

#include "costmodel/base/index.h"
#include "costmodel/base/parallel.h"
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

/// What is left of draws that were played at once.
struct PlayedPart {
  StepSums sums;
  std::vector<double> longest_ms;
  std::vector<std::vector<double>> mean_ms;  ///< [run][draw]
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
  const std::size_t parts = (draws.size() + kTogether - 1) / kTogether;
  std::vector<PlayedPart> played_parts(parts);
  const std::size_t lanes = draws.size() * draws.front().size();
  constexpr std::size_t kWorthThreads = 200'000;  // Steps of a rank: some milliseconds.
  const int wanted = steps.size() * of_first * lanes < kWorthThreads ? 1 : threads;
  const std::thread::id caller = std::this_thread::get_id();
  std::atomic<std::size_t> done{0};
  const auto share = [&](double of_part) {
    return (static_cast<double>(done) + of_part) / static_cast<double>(parts);
  };
  parallel_for(parts, wanted, [&](std::size_t part) {
    const std::size_t number = part * kTogether;
    const std::size_t count = std::min(kTogether, draws.size() - number);
    DrawPlayer player(run,
                      first,
                      others,
                      steps,
                      static_cast<int>(number),
                      std::span(draws).subspan(number, count));
    player.play([&](int step) {
      if (on_progress && std::this_thread::get_id() == caller) {
        on_progress(share(static_cast<double>(step) / run.scenario().steps));
      }
    });
    played_parts[part].sums = player.take_sums();
    played_parts[part].longest_ms = player.longest_ms();
    for (std::size_t r = 0; r < draws.front().size(); ++r) {
      played_parts[part].mean_ms.push_back(player.mean_ms(r));
    }
    ++done;
  });
  PlayedDraws played;
  played.mean_ms.resize(draws.front().size());
  const auto append = [](std::vector<double>& to, const std::vector<double>& from) {
    to.insert(to.end(), from.begin(), from.end());
  };
  played.jitter.reserve(steps.size() * draws.size());
  for (PlayedPart& part : played_parts) {
    played.jitter.add(part.sums);
    append(played.longest_ms, part.longest_ms);
    for (std::size_t r = 0; r < played.mean_ms.size(); ++r) {
      append(played.mean_ms[r], part.mean_ms[r]);
    }
    part = {};
  }
  return played;
}

PlayedDraws play_engine(Run& run,
                        const std::vector<Draw>& draws,
                        const ProgressCallback& on_progress) {
  PlayedDraws played;
  played.mean_ms.resize(draws.front().size());
  for (std::size_t d = 0; d < draws.size(); ++d) {
    for (std::size_t r = 0; r < draws[d].size(); ++r) {
      NoiseDraws noise(seed_of_draw(run.scenario().seed, d));
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
    if (on_progress) {
      on_progress(static_cast<double>(d + 1) / static_cast<double>(draws.size()));
    }
  }
  return played;
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
  return run.reduced().plain() ? play_lanes(run, draws, steps, threads, on_progress)
                               : play_engine(run, draws, on_progress);
}

}  // namespace stepsim
