#include "sim/report/text.h"

#include <algorithm>
#include <cmath>

#include <fmt/core.h>

#include "sim/metrics.h"
#include "sim/report/table.h"
#include "sim/report/varlen_report.h"

namespace stepsim {

namespace {

std::string percent(double fraction) {
  return fmt::format("{:.1f} %", fraction * 100);
}

std::string header_text(const Scenario& scenario, const Prediction& prediction) {
  return fmt::format("{}: {} ranks, model {}, profile {}; {} steps, the first {} left out\n",
                     scenario.name,
                     scenario.ranks,
                     scenario.model.name,
                     prediction.profile,
                     scenario.steps,
                     scenario.warmup_steps);
}

/// A policy on data of its own is a reference case: other work, so not a choice.
bool is_reference(const Scenario& scenario, const std::string& policy) {
  return find_policy(scenario, policy).lengths.has_value();
}

std::string interval(const StepTimeSummary& times) {
  return fmt::format("{:.3g}-{:.3g}", times.low90, times.high90);
}

std::string warnings_text(const std::vector<Prediction>& predictions) {
  std::string text;
  for (const std::string& warning : warnings_of(predictions)) {
    text += "warning: " + warning + "\n";
  }
  return text;
}

std::vector<const Prediction*> ranked_by_throughput(const std::vector<Prediction>& predictions) {
  std::vector<const Prediction*> ranked;
  for (const Prediction& prediction : predictions) {
    ranked.push_back(&prediction);
  }
  std::stable_sort(ranked.begin(), ranked.end(), [](const Prediction* a, const Prediction* b) {
    return a->summary.useful_tokens_per_s > b->summary.useful_tokens_per_s;
  });
  return ranked;
}

/// Those on the scenario's own data that fit into memory, best first.
std::vector<const Prediction*> choices_of(const Scenario& scenario,
                                          const std::vector<Prediction>& predictions) {
  std::vector<const Prediction*> choices = ranked_by_throughput(predictions);
  std::erase_if(choices, [&](const Prediction* prediction) {
    return is_reference(scenario, prediction->policy) || !prediction->out_of_memory.empty();
  });
  return choices;
}

std::string share(std::int64_t part, std::int64_t whole) {
  return whole > 0 ? fmt::format("{} ({:.1f} %)",
                                 part,
                                 100.0 * static_cast<double>(part) / static_cast<double>(whole))
                   : std::to_string(part);
}

bool cuts_samples(const Prediction* prediction) {
  return prediction->training &&
         (prediction->training->cropped_tokens > 0 || prediction->training->split_samples > 0);
}

/// Which policy takes the host longest to plan; of policies with effects.
std::string planning_text(const std::vector<const Prediction*>& ranked) {
  const auto per_step = [](const Prediction* prediction) {
    const auto steps = prediction->training ? prediction->training->most_steps : 0;
    return steps > 0 ? prediction->planning_seconds / static_cast<double>(steps) * 1e3 : 0;
  };
  const Prediction* slowest = *std::max_element(
      ranked.begin(), ranked.end(), [&](const Prediction* a, const Prediction* b) {
        return per_step(a) < per_step(b);
      });
  return fmt::format(
      "planning on this host: at most {:.2g} ms a step ({})\n", per_step(slowest), slowest->policy);
}

/// What the policies do to training, beside their speed; empty when that was not asked for. Columns
/// about parts of samples are there where a policy cuts samples.
std::string training_text(const std::vector<const Prediction*>& ranked) {
  const bool targets = std::any_of(ranked.begin(), ranked.end(), [](const Prediction* prediction) {
    return prediction->training && prediction->training->target_padding_ratio();
  });
  const bool cuts = std::any_of(ranked.begin(), ranked.end(), cuts_samples);
  std::vector<std::string> header = {"policy", "steps", "lost samples"};
  if (cuts) {
    header.insert(header.end(), {"lost tokens", "cropped tokens", "split samples"});
  }
  header.insert(header.end(), {"repeated", "sample skew", "token skew", "moved by", "shapes"});
  if (targets) {
    header.insert(header.end(), {"useful targets", "padded targets", "target padding"});
  }
  const bool over = std::any_of(ranked.begin(), ranked.end(), [](const Prediction* prediction) {
    return prediction->training && prediction->training->over_budget_samples > 0;
  });
  if (over) {
    header.push_back("over budget");
  }
  Table table(header);
  bool any = false;
  for (const Prediction* prediction : ranked) {
    if (!prediction->training) {
      continue;
    }
    any = true;
    const TrainingEffects& effects = *prediction->training;
    const bool equal = effects.fewest_steps == effects.most_steps;
    std::vector<std::string> row = {
        prediction->policy,
        equal ? std::to_string(effects.most_steps)
              : fmt::format("{}-{}", effects.fewest_steps, effects.most_steps),
        share(effects.lost_samples, effects.samples)};
    if (cuts) {
      row.push_back(share(effects.lost_tokens, effects.tokens));
      row.push_back(share(effects.cropped_tokens, effects.tokens));
      row.push_back(share(effects.split_samples, effects.samples));
    }
    row.insert(row.end(),
               {share(effects.repeated_samples, effects.samples),
                fmt::format("{:.3f}", effects.sample_skew),
                fmt::format("{:.3f}", effects.token_skew),
                percent(effects.displacement),
                std::to_string(effects.distinct_shapes)});
    if (targets) {
      const auto ratio = effects.target_padding_ratio();
      row.push_back(std::to_string(effects.useful_target_tokens));
      row.push_back(std::to_string(effects.padded_target_tokens));
      row.push_back(ratio ? percent(*ratio) : "-");
    }
    if (over) {
      row.push_back(share(effects.over_budget_samples, effects.samples));
    }
    table.add(std::move(row));
  }
  if (!any) {
    return "";
  }
  return "\none epoch of training (skew: the largest rank over the mean; moved by: how far from "
         "the "
         "sampler's order, as a share of the epoch)\n\n" +
         table.text() + planning_text(ranked);
}

std::string varlen_section(const std::vector<const Prediction*>& predictions) {
  std::vector<NamedVarlenUse> uses;
  for (const Prediction* prediction : predictions) {
    if (prediction->varlen) {
      uses.emplace_back(prediction->policy, *prediction->varlen);
    }
  }
  return uses.empty() ? "" : "\n" + varlen_text(uses);
}

}  // namespace

std::vector<std::string> warnings_of(const std::vector<Prediction>& predictions) {
  std::vector<std::string> seen;
  for (const Prediction& prediction : predictions) {
    for (const std::string& warning : prediction.warnings) {
      // An out-of-memory step differs by policy; everything else is said once.
      const bool memory = warning.rfind("out of memory", 0) == 0;
      const std::string line = memory ? prediction.policy + ": " + warning : warning;
      if (std::find(seen.begin(), seen.end(), line) == seen.end()) {
        seen.push_back(line);
      }
    }
  }
  return seen;
}

const Prediction* recommended(const Scenario& scenario,
                              const std::vector<Prediction>& predictions) {
  const std::vector<const Prediction*> choices = choices_of(scenario, predictions);
  return choices.empty() ? nullptr : choices.front();
}

std::string recommendation_text(const Scenario& scenario,
                                const std::vector<Prediction>& predictions) {
  const std::vector<const Prediction*> choices = choices_of(scenario, predictions);
  if (choices.empty()) {
    return "No policy of this scenario fits into memory on its own data.";
  }
  const PredictionSummary& best = choices.front()->summary;
  std::string text = fmt::format(
      "Use {}: {:.0f} useful tokens/s", choices.front()->policy, best.useful_tokens_per_s);
  if (choices.size() > 1) {
    const PredictionSummary& next = choices[1]->summary;
    const PredictionSummary& last = choices.back()->summary;
    text += fmt::format(", {:+.1f} % over {}",
                        (best.useful_tokens_per_s / next.useful_tokens_per_s - 1) * 100,
                        choices[1]->policy);
    if (choices.size() > 2) {
      text += fmt::format(" and {:+.1f} % over {}",
                          (best.useful_tokens_per_s / last.useful_tokens_per_s - 1) * 100,
                          choices.back()->policy);
    }
    // Throughput at the far ends of both intervals: errors shared by the policies make this
    // cautious.
    const double worst_best = best.useful_tokens_per_step / best.step_time_ms.high90;
    const double best_next = next.useful_tokens_per_step / next.step_time_ms.low90;
    text += worst_best > best_next
                ? "; the 90 % intervals do not overlap"
                : fmt::format("; the 90 % intervals of {} and {} overlap, so measure both",
                              choices.front()->policy,
                              choices[1]->policy);
  }
  return text + ".";
}

std::string run_text(const Scenario& scenario, const Prediction& prediction) {
  const PredictionSummary& s = prediction.summary;
  std::string text = header_text(scenario, prediction);
  text += fmt::format("policy {}\n\n", prediction.policy);
  text += fmt::format("step time          {:.3f} ms mean, 90 % interval {:.3f} to {:.3f}\n",
                      s.step_time_ms.mean,
                      s.step_time_ms.low90,
                      s.step_time_ms.high90);
  text += fmt::format("                   {:.3f} ms p50, {:.3f} p95, {:.3f} p99, {:.3f} max\n",
                      s.step_time_ms.p50,
                      s.step_time_ms.p95,
                      s.step_time_ms.p99,
                      s.step_time_ms.max);
  text += fmt::format("throughput         {:.0f} useful tokens/s, {:.1f} samples/s\n",
                      s.useful_tokens_per_s,
                      s.samples_per_s);
  text += fmt::format("padding ratio      {}\n", percent(s.padding_ratio));
  text += fmt::format("rank token spread  {:.1f} useful tokens\n", s.rank_token_spread);
  text +=
      fmt::format("communication      {:.3f} ms of collectives, {:.3f} ms exposed, {} overlapped\n",
                  s.communication_ms,
                  s.exposed_communication_ms,
                  percent(s.overlap_fraction));
  for (const std::string& source : prediction.collective_sources) {
    text += fmt::format("                   {}\n", source);
  }
  text += fmt::format("scaling efficiency {}\n", percent(s.scaling_efficiency));
  text += fmt::format("peak memory        {:.1f} MiB\n", s.peak_memory_mib);
  if (const auto& budget = prediction.token_budget) {
    text += fmt::format(
        "largest budget     {} padded tokens a micro-batch fit into memory at length {}\n",
        budget->tokens,
        budget->length);
  }
  text += "\n";

  Table table({"rank",
               "data ms",
               "forward ms",
               "backward ms",
               "exposed ms",
               "optimizer ms",
               "step ms",
               "useful tokens",
               "padded tokens"});
  for (int rank = 0; rank < scenario.ranks; ++rank) {
    std::vector<RankStepResult> rows;
    for (const RankStepResult& row : prediction.steps) {
      if (row.rank == rank && row.step >= scenario.warmup_steps) {
        rows.push_back(row);
      }
    }
    const auto average = [&](auto member) {
      double total = 0;
      for (const RankStepResult& row : rows) {
        total += static_cast<double>(row.*member);
      }
      return rows.empty() ? 0.0 : total / static_cast<double>(rows.size());
    };
    table.add({std::to_string(rank),
               fmt::format("{:.3f}", average(&RankStepResult::data_ms)),
               fmt::format("{:.3f}", average(&RankStepResult::forward_ms)),
               fmt::format("{:.3f}", average(&RankStepResult::backward_ms)),
               fmt::format("{:.3f}", average(&RankStepResult::exposed_ms)),
               fmt::format("{:.3f}", average(&RankStepResult::optimizer_ms)),
               fmt::format("{:.3f}", average(&RankStepResult::step_ms)),
               fmt::format("{:.1f}", average(&RankStepResult::useful_tokens)),
               fmt::format("{:.1f}", average(&RankStepResult::padded_tokens))});
  }
  return text + table.text() + varlen_section({&prediction}) + warnings_text({prediction});
}

std::string compare_text(const Scenario& scenario, const std::vector<Prediction>& predictions) {
  const std::vector<const Prediction*> ranked = ranked_by_throughput(predictions);
  Table table({"policy",
               "step ms",
               "90 % interval",
               "p95 ms",
               "useful tokens/s",
               "padding",
               "rank token spread",
               "exposed ms",
               "efficiency",
               "memory MiB"});
  bool any_reference = false;
  for (const Prediction* prediction : ranked) {
    const PredictionSummary& s = prediction->summary;
    const bool reference = is_reference(scenario, prediction->policy);
    any_reference = any_reference || reference;
    table.add({prediction->policy + (reference ? " *" : ""),
               fmt::format("{:.3f}", s.step_time_ms.mean),
               interval(s.step_time_ms),
               fmt::format("{:.3f}", s.step_time_ms.p95),
               fmt::format("{:.0f}", s.useful_tokens_per_s),
               percent(s.padding_ratio),
               fmt::format("{:.1f}", s.rank_token_spread),
               fmt::format("{:.3f}", s.exposed_communication_ms),
               percent(s.scaling_efficiency),
               fmt::format("{:.1f}", s.peak_memory_mib)});
  }
  std::string text = header_text(scenario, predictions.front()) + "\n" + table.text();
  if (any_reference) {
    text += "* a reference case on data of its own: not a choice\n";
  }
  text += "\n" + recommendation_text(scenario, predictions) + "\n";
  return text + training_text(ranked) + varlen_section(ranked) + warnings_text(predictions);
}

}  // namespace stepsim
