#include "sim/report/blame_report.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "costmodel/base/mapped.h"
#include "costmodel/network/collective_cost.h"
#include "costmodel/terminal/table.h"
#include "sim/predict/step_picture.h"
#include "sim/report/columns.h"
#include "sim/report/notes.h"
#include "sim/report/number_text.h"
#include "sim/scenario/stepsim_command.h"

namespace stepsim {

namespace {

/// Ranks that the table and the line below it name; the JSON has them all.
constexpr std::size_t kRanksShown = 3;
constexpr std::size_t kOpsShown = 3;

/// Less than this is not shown in milliseconds of three decimals.
constexpr double kShownMs = 0.0005;

bool is_imbalance(Change change) {
  return change == Change::Balanced || change == Change::MedianRank;
}

/// The value of the window's parameter that makes it kStepsPerWindow steps long.
std::int64_t wide_enough(const Imbalance& imbalance) {
  return static_cast<std::int64_t>(std::ceil(kStepsPerWindow * imbalance.samples_per_step /
                                             static_cast<double>(imbalance.window->samples_per)));
}

/// What to try about communication: the sizes of the buckets, where the scenario has any and they
/// are what is exposed. ZeRO-1 broadcasts its parameters tensor by tensor, whatever the buckets.
std::string communication_command(const Scenario& scenario, const Blame& blame) {
  const std::string& policy = blame.policy;
  double all = 0;
  double broadcasts = 0;
  for (const BucketBlame& bucket : blame.buckets) {
    all += bucket.exposed_ms;
    broadcasts += bucket.collective == name_of(CollectiveKind::Broadcast) ? bucket.exposed_ms : 0;
  }
  if (2 * broadcasts > all) {
    return stepsim_command("sweep", scenario, policy) + " --over parallel=ddp,zero1,zero2,fsdp2";
  }
  if (const std::string_view units = scenario.parallel->units_sweep(); !units.empty()) {
    return fmt::format("{} --over {}", stepsim_command("sweep", scenario, policy), units);
  }
  if (has_bucket_cap(scenario)) {
    return stepsim_command("sweep", scenario, policy) + " --over ddp.bucket_cap=1MiB..256MiB:x2";
  }
  return scenario.ddp.bucket_caps.empty()
             ? stepsim_command("run", scenario, policy, {{"ddp.bucket_rule", "pytorch"}})
             : stepsim_command("buckets", scenario, policy) + " --best";
}

/// What to try about it.
std::string next_command(const Scenario& scenario, const Blame& blame, Change change) {
  const auto run_with = [&](const std::vector<Setting>& set) {
    return stepsim_command("run", scenario, blame.policy, set);
  };
  switch (change) {
    case Change::FreeCommunication:
      return communication_command(scenario, blame);
    case Change::Balanced:
    case Change::MedianRank:
      if (blame.imbalance.is_skew) {
        return run_with({{"cluster.skew", "0"}});
      }
      if (blame.imbalance.window) {
        return stepsim_command(
            "blame",
            scenario,
            blame.policy,
            {{fmt::format("policy.{}.{}", blame.policy, blame.imbalance.window->parameter),
              fmt::format("{}", wide_enough(blame.imbalance))}});
      }
      // A scenario of one policy needs another one first.
      return scenario.policies.size() > 1 ? stepsim_command("compare", scenario)
                                          : "stepsim policies";
    case Change::EqualRanks:
      return run_with(
          scenario.loader.delays.empty()
              ? std::vector<Setting>{{"cluster.slow_ranks", "[]"}}
              : std::vector<Setting>{{"cluster.slow_ranks", "[]"}, {"data.delays", "[]"}});
    case Change::NoInterference:
      return run_with({{"interference", "{}"}});
    case Change::OneBucket:
      return run_with({{"ddp.bucket_rule", "single"}});
    case Change::NoNewShapes:
      return run_with({{"new_shapes.warm_up", "true"}});
    case Change::NoUnitHost:
      return run_with({{"host.unit_forward", "0 s"},
                       {"host.unit_forward_tensor", "0 s"},
                       {"host.unit_backward", "0 s"},
                       {"host.unit_backward_tensor", "0 s"},
                       {"host.sharded_tensor", "0 s"}});
    case Change::NoLaunches:
      return run_with({{"host.launch", "0 s"},
                       {"host.enqueue", "0 s"},
                       {"host.hook", "0 s"},
                       {"host.python_hook", "0 s"},
                       {"host.traversal_per_op", "0 s"}});
    case Change::NoData:
      break;
  }
  return stepsim_command("trace", scenario, blame.policy) + " --out trace.json";
}

double share(const Blame& blame, const Saving& saving) {
  return blame.step_ms > 0 ? saving.saves_ms / blame.step_ms : 0;
}

/// A change, in the blame that it is of.
struct SavingRow {
  const Blame* blame;
  Saving saving;
};

std::vector<SavingRow> rows_of(const Blame& blame, const std::vector<Saving>& savings) {
  return mapped(savings, [&](const Saving& saving) { return SavingRow{&blame, saving}; });
}

/// A figure of a change that could be priced.
Cell priced(const SavingRow& row, double figure) {
  return row.saving.not_priced.empty() ? Cell(figure) : Cell();
}

// clang-format off
const Column<SavingRow> kSavingColumns[] = {
    {"change", "change", [](const SavingRow& r) -> Cell { return name_of(r.saving.change); }},
    {nullptr, nullptr, [](const SavingRow& r) -> Cell { return saving_words(r.saving); },
     "the step, if", FigureFormat::Words, 10},
    {"rank", "rank",
     [](const SavingRow& r) -> Cell { return r.saving.rank >= 0 ? Cell(std::int64_t{r.saving.rank}) : Cell(); }},
    {"step_ms", "step_ms", [](const SavingRow& r) { return priced(r, r.saving.step_ms); },
     "step ms", FigureFormat::Milliseconds, 20},
    {"saves_ms", "saves_ms", [](const SavingRow& r) { return priced(r, r.saving.saves_ms); },
     "saves ms", FigureFormat::SignedMilliseconds, 30},
    {"share", "share", [](const SavingRow& r) { return priced(r, share(*r.blame, r.saving)); },
     "of the step", FigureFormat::SignedPercent, 40},
};
// clang-format on

Table savings_table(const Blame& blame, const Screen& screen) {
  const std::vector<SavingRow> rows = rows_of(blame, shown_savings(blame));
  Table table = table_of<SavingRow>(kSavingColumns, rows, screen);
  table.add_bars("saves, of the step",
                 mapped(rows, [&](const SavingRow& row) { return share(blame, row.saving); }),
                 {});
  return table;
}

std::string last_text(const Blame& blame) {
  std::vector<std::size_t> ranks(blame.last.size());
  std::iota(ranks.begin(), ranks.end(), std::size_t{0});
  std::ranges::stable_sort(
      ranks, [&](std::size_t a, std::size_t b) { return blame.last[a] > blame.last[b]; });
  if (blame.last[ranks.front()] - blame.last[ranks.back()] < 1e-9) {
    return "no rank ends its backward last more often than another\n";
  }
  std::string text = "slowest rank in backward:";
  for (std::size_t i = 0; i < std::min(ranks.size(), kRanksShown); ++i) {
    if (const double often = blame.last[ranks[i]]; often > 0) {
      text += fmt::format(
          "{} rank {} in {:.1f} % of the steps", i > 0 ? "," : "", ranks[i], often * 100);
    }
  }
  return text + "\n";
}

std::string exposed_text(const Blame& blame) {
  const auto most = most_exposed(blame);
  if (!most) {
    const auto free = std::ranges::find(blame.savings, Change::FreeCommunication, &Saving::change);
    const bool holds_up = free != blame.savings.end() && free->saves_ms >= kShownMs;
    return holds_up ? fmt::format(
                          "no transfer is left after the last backward; within the passes "
                          "communication takes {:.3f} ms of the step\n",
                          free->saves_ms)
                    : "all communication is hidden behind the backward\n";
  }
  const double all = sum_of(blame.buckets, &BucketBlame::exposed_ms);
  return fmt::format(
      "after the last backward: {:.3f} ms of transfers, most in number {} of {} ({}), {:.3f} ms\n",
      all,
      *most + 1,
      blame.buckets.size(),
      blame.buckets[*most].collective,
      blame.buckets[*most].exposed_ms);
}

std::string ops_text(const Blame& blame) {
  const double all = sum_of(blame.ops, &OpBlame::ms);
  std::string text = fmt::format("forward and backward: {:.3f} ms a rank", all);
  for (std::size_t i = 0; i < std::min(blame.ops.size(), kOpsShown); ++i) {
    text += fmt::format(
        "{} {} {:.3f} ms", i > 0 ? "," : ", of which", blame.ops[i].ops, blame.ops[i].ms);
  }
  return text + "\n";
}

std::string noise_text(const Blame& blame) {
  const std::string mean = fmt::format("{:.3f} ms a step", blame.mean_step_ms);
  if (std::abs(blame.mean_step_ms - blame.step_ms) < kShownMs) {
    return mean + "\n";
  }
  return fmt::format("{}, of which {:.3f} ms come from noise; all below is without it: {:.3f} ms\n",
                     mean,
                     blame.mean_step_ms - blame.step_ms,
                     blame.step_ms);
}

/// Why the ranks of a step differ, where that is what the step is spent on.
std::string imbalance_text(const Blame& blame) {
  const Imbalance& imbalance = blame.imbalance;
  if (imbalance.is_skew) {
    return fmt::format(
        "Why: cluster.skew gives the last rank {:.2f} times the mean work of the ranks, whatever "
        "the batches.\n",
        imbalance.skew_over_mean);
  }
  constexpr double kShown = 1.005;
  if (imbalance.heaviest_over_mean < kShown) {
    return fmt::format(
        "Why: in a mean step the rank with the most work has {:.2f} times the mean of the ranks, "
        "though all have\n     about as many padded tokens.\n",
        imbalance.work_over_mean);
  }
  std::string text = fmt::format(
      "Why: in a mean step the rank with the most padded tokens has {:.2f} times the mean of the "
      "ranks.\n",
      imbalance.heaviest_over_mean);
  if (imbalance.window) {
    text += fmt::format(
        "     One step takes {:.0f} samples, and the policy looks for similar lengths among {} "
        "at a time,\n     so its ranks get long and short ones. A larger {} helps, or a policy\n"
        "     that balances the ranks (see stepsim policies).\n",
        imbalance.samples_per_step,
        imbalance.window->samples,
        imbalance.window->parameter);
  }
  return text;
}

/// Why a change would save so much, where that can be said in a sentence.
std::string reason_text(const Blame& blame, Change change) {
  if (is_imbalance(change)) {
    return imbalance_text(blame);
  }
  return change == Change::NoLaunches
             ? "Why: the GPU waits for its host, which launches kernels slower than they run. "
               "Larger "
               "batches,\n     torch.compile and CUDA graphs make fewer launches of the same work; "
               "faster collectives\n     and larger buckets would not be noticed.\n"
             : "";
}

std::string headline(const Scenario& scenario, const Blame& blame) {
  constexpr double kWorthSaying = 0.001;
  const Saving& largest = blame.savings.front();
  if (share(blame, largest) < kWorthSaying) {
    return fmt::format("No single change saves as much as 0.1 %: the step is compute.\nNext: {}\n",
                       next_command(scenario, blame, Change::NoData));
  }
  return fmt::format("Most would be saved if {}: {:.3f} ms, {:.1f} % of the step.\n{}Next: {}\n",
                     saving_words(largest),
                     largest.saves_ms,
                     share(blame, largest) * 100,
                     reason_text(blame, largest.change),
                     next_command(scenario, blame, largest.change));
}

}  // namespace

std::vector<Saving> shown_savings(const Blame& blame) {
  std::vector<Saving> shown;
  std::size_t ranks = 0;
  for (const Saving& saving : blame.savings) {
    if (saving.change != Change::MedianRank || ++ranks <= kRanksShown) {
      shown.push_back(saving);
    }
  }
  return shown;
}

std::string saving_words(const Saving& saving) {
  switch (saving.change) {
    case Change::FreeCommunication:
      return "communication took no time";
    case Change::Balanced:
      return "every rank had the mean load of its step";
    case Change::EqualRanks:
      return "all ranks were equally fast";
    case Change::MedianRank:
      return fmt::format("rank {} had the median load of its step", saving.rank);
    case Change::NoInterference:
      return "communication and compute did not slow each other";
    case Change::OneBucket:
      return "all gradients went in one bucket";
    case Change::NoData:
      return "loading the batches took no time";
    case Change::NoNewShapes:
      return "every shape was known from the start";
    case Change::NoUnitHost:
      return "the host took no time for its units";
    case Change::NoLaunches:
      return "the host launched kernels in no time";
  }
  return "";
}

std::string blame_text(const Scenario& scenario, const Blame& blame, const Screen& screen) {
  std::string text =
      fmt::format("{}: policy {}, {} ranks, profile {}; {} steps, the first {} left out\n",
                  blame.scenario,
                  blame.policy,
                  scenario.ranks,
                  blame.profile,
                  scenario.steps,
                  scenario.warmup_steps);
  text += noise_text(blame) + "\n";
  text += savings_table(blame, screen).text(screen);
  text += "Each row changes one thing; savings overlap, so they do not add up.\n";
  std::string warnings;
  for (const Saving& saving : blame.savings) {
    if (!saving.not_priced.empty()) {
      warnings +=
          fmt::format("warning: {}: not priced: {}\n", saving_words(saving), saving.not_priced);
    }
  }
  warnings += warnings_text(noted(blame.notes));
  return text + "\n" + last_text(blame) + exposed_text(blame) + ops_text(blame) + "\n" +
         headline(scenario, blame) + warnings;
}

Json blame_json(const Blame& blame) {
  Json changes = mapped(rows_of(blame, blame.savings), [](const SavingRow& row) {
    Json entry = row_json<SavingRow>(kSavingColumns, row);
    if (!row.saving.not_priced.empty()) {
      entry["not_priced"] = row.saving.not_priced;
    }
    return entry;
  });
  Json buckets = mapped(blame.buckets, [](const BucketBlame& bucket) -> Json {
    return {{"collective", bucket.collective}, {"exposed_ms", bucket.exposed_ms}};
  });
  Json imbalance = {{"heaviest_over_mean", blame.imbalance.heaviest_over_mean},
                    {"work_over_mean", blame.imbalance.work_over_mean},
                    {"skew_over_mean", blame.imbalance.skew_over_mean},
                    {"samples_per_step", blame.imbalance.samples_per_step}};
  if (blame.imbalance.window) {
    imbalance["window"] = {{"parameter", blame.imbalance.window->parameter},
                           {"samples", blame.imbalance.window->samples}};
  }
  Json ops = mapped(blame.ops, [](const OpBlame& op) -> Json {
    return {{"ops", op.ops}, {"ms", op.ms}};
  });
  return {{"format", "stepsim-blame/1"},
          {"scenario", blame.scenario},
          {"policy", blame.policy},
          {"profile", blame.profile},
          {"mean_step_ms", blame.mean_step_ms},
          {"step_ms", blame.step_ms},
          {"changes", std::move(changes)},
          {"last_share", blame.last},
          {"imbalance", std::move(imbalance)},
          {"collectives", std::move(buckets)},
          {"ops", std::move(ops)},
          {"warnings", note_texts(noted(blame.notes))}};
}

std::string blame_csv(const Blame& blame) {
  return csv_text<SavingRow>(kSavingColumns, rows_of(blame, blame.savings));
}

}  // namespace stepsim
