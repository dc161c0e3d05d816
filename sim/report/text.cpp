#include "sim/report/text.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "costmodel/base/index.h"
#include "costmodel/base/mapped.h"
#include "costmodel/model/memory.h"
#include "costmodel/terminal/table.h"
#include "costmodel/terminal/wrap.h"
#include "sim/batching/lengths.h"
#include "sim/report/notes.h"
#include "sim/report/number_text.h"
#include "sim/report/prediction_columns.h"
#include "sim/report/shape_report.h"
#include "sim/report/varlen_report.h"
#include "sim/study/recommendation.h"

namespace stepsim {

namespace {

std::string header_text(const Scenario& scenario, const Prediction& prediction) {
  return fmt::format("{}: {} ranks, model {}, profile {}; {} steps, the first {} left out\n",
                     scenario.name,
                     scenario.ranks,
                     scenario.model.name,
                     prediction.profile,
                     scenario.steps,
                     scenario.warmup_steps);
}

/// Useful tokens/s at the mean step time and at the ends of its interval.
Interval90 speed_interval(const PredictionSummary& summary) {
  const auto at = [&summary](double step_ms) {
    return step_ms > 0 ? summary.useful_tokens_per_step * 1e3 / step_ms : 0;
  };
  const StepTimeSummary& step = summary.step_time_ms;
  return {at(step.high90), at(step.mean), at(step.low90)};
}

/// Those that do not fit into memory come last.
std::vector<const Prediction*> ranked_by_throughput(const std::vector<Prediction>& predictions) {
  std::vector<const Prediction*> ranked =
      mapped(predictions, [](const Prediction& prediction) { return &prediction; });
  const auto rank = [](const Prediction* prediction) {
    return std::pair(prediction->out_of_memory.has_value(),
                     -prediction->summary.useful_tokens_per_s());
  };
  std::ranges::stable_sort(ranked, {}, rank);
  return ranked;
}

std::string share(std::int64_t part, std::int64_t whole) {
  return whole > 0
             ? fmt::format(
                   "{} ({})", part, percent(static_cast<double>(part) / static_cast<double>(whole)))
             : std::to_string(part);
}

bool cuts_samples(const Prediction* prediction) {
  return prediction->training &&
         (prediction->training->cropped_tokens > 0 || prediction->training->split_samples > 0);
}

/// What a training loop must do for a policy's batches.
std::string needs_text(const std::string& policy, const std::vector<std::string>& needs) {
  std::string text;
  for (const std::string& need : needs) {
    text += fmt::format("note: with {}, {}\n", printable(policy), need);
  }
  return text;
}

/// What the row of a policy that plays a part of the data is of; empty for others.
std::string played_text(const Scenario& scenario, const Prediction& prediction) {
  const TrainingEffects& effects = *prediction.training;
  const bool is_file = scenario.lengths.kind == LengthSource::Kind::File;
  if (find_policy(scenario, prediction.policy).played() == nullptr || effects.samples == 0) {
    return "";
  }
  const std::int64_t samples =
      is_file ? std::ssize(generate_lengths(scenario.lengths, 0)) : scenario.samples;
  if (effects.samples >= samples) {
    return "";
  }
  const double share = static_cast<double>(effects.samples) / static_cast<double>(samples);
  return fmt::format(
      "{}: the {} steps of its file, with {} of the {} samples; {:.0f} of such steps are an "
      "epoch\n",
      prediction.policy,
      effects.most_steps,
      effects.samples,
      samples,
      static_cast<double>(effects.most_steps) / share);
}

/// What the policies do to training, beside their speed; empty when that was not asked for. Columns
/// about parts of samples are there where a policy cuts samples.
std::string training_text(const Scenario& scenario,
                          const std::vector<const Prediction*>& ranked,
                          const Screen& screen) {
  const bool targets = std::ranges::any_of(ranked, [](const Prediction* prediction) {
    return prediction->training && prediction->training->target_padding_ratio();
  });
  const bool cuts = std::ranges::any_of(ranked, cuts_samples);
  std::vector<std::string> header = {"policy", "steps", "lost samples"};
  if (cuts) {
    header.insert(header.end(), {"lost tokens", "cropped tokens", "split samples"});
  }
  if (screen.wide) {
    header.insert(header.end(), {"repeated", "sample skew"});
  }
  header.insert(header.end(), {"token skew", "order change", "shapes"});
  if (targets) {
    header.insert(header.end(), {"useful targets", "padded targets", "target padding"});
  }
  const bool over = std::ranges::any_of(ranked, [](const Prediction* prediction) {
    return prediction->training && prediction->training->over_budget_samples > 0;
  });
  if (over) {
    header.push_back("over budget");
  }
  Table table(header);
  bool any = false;
  std::string played;
  for (const Prediction* prediction : ranked) {
    if (!prediction->training) {
      continue;
    }
    any = true;
    const TrainingEffects& effects = *prediction->training;
    played += played_text(scenario, *prediction);
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
    if (screen.wide) {
      row.push_back(share(effects.repeated_samples, effects.samples));
      row.push_back(fmt::format("{:.3f}", effects.sample_skew));
    }
    row.insert(row.end(),
               {fmt::format("{:.3f}", effects.token_skew),
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
  return "\none epoch of training (skew: the largest rank over the mean; order change: distance "
         "from the sampler's order, as a share of the epoch)\n\n" +
         table.text(screen) + played;
}

/// The recommended policy, and those that are no choice.
Paint row_paint(const Prediction& prediction,
                bool reference,
                const Recommendation& recommendation) {
  if (prediction.out_of_memory) {
    return Paint::Bad;
  }
  const bool best =
      !recommendation.choices.empty() && recommendation.choices.front().policy == prediction.policy;
  return best ? Paint::Good : (reference ? Paint::Quiet : Paint::Plain);
}

std::string varlen_section(const std::vector<const Prediction*>& predictions,
                           const Screen& screen) {
  std::vector<NamedVarlenUse> uses;
  for (const Prediction* prediction : predictions) {
    if (prediction->varlen) {
      uses.emplace_back(prediction->policy, *prediction->varlen);
    }
  }
  return uses.empty() ? "" : "\n" + varlen_text(uses, screen);
}

/// One row a rank: its means, and the share of the step in which it does not wait.
/// Ranks that follow each other and have the same figures are one row, "0-63".
Table ranks_table(const Prediction& prediction, const Screen& screen) {
  std::vector<std::string> header = {
      "rank", "data", "forward", "backward", "exposed", "waiting", "optimizer", "step ms"};
  if (screen.wide) {
    header.insert(header.end(), {"useful tokens", "padded tokens"});
  }
  std::vector<std::vector<std::string>> rows;
  std::vector<double> busy;
  std::size_t first = 0;
  for (std::size_t rank = 0; rank < prediction.ranks.size(); ++rank) {
    const RankMeans& means = prediction.ranks[rank];
    std::vector<std::string> row = {std::to_string(rank),
                                    fmt::format("{:.3f}", means.data_ms),
                                    fmt::format("{:.3f}", means.forward_ms),
                                    fmt::format("{:.3f}", means.backward_ms),
                                    fmt::format("{:.3f}", means.exposed_ms - means.waiting_ms),
                                    fmt::format("{:.3f}", means.waiting_ms),
                                    fmt::format("{:.3f}", means.optimizer_ms),
                                    fmt::format("{:.3f}", means.step_ms)};
    if (screen.wide) {
      row.push_back(fmt::format("{:.1f}", means.useful_tokens));
      row.push_back(fmt::format("{:.1f}", means.padded_tokens));
    }
    if (!rows.empty() && std::equal(row.begin() + 1, row.end(), rows.back().begin() + 1)) {
      rows.back().front() = fmt::format("{}-{}", first, rank);
      continue;
    }
    first = rank;
    rows.push_back(std::move(row));
    busy.push_back((means.step_ms - means.exposed_ms) / std::max(means.step_ms, 1e-9));
  }
  Table table(std::move(header));
  for (std::vector<std::string>& row : rows) {
    table.add(std::move(row));
  }
  table.add_bars("not waiting", std::move(busy), {});
  return table;
}

/// What the machine's drift does to the interval; empty where it does not make it much wider.
std::string same_hour_text(const Prediction& prediction) {
  const StepTimeSummary& step = prediction.summary.step_time_ms;
  return step.drifts() ? fmt::format(
                             "The intervals hold at any hour of this machine. In the hour of its "
                             "calibration, {} takes {} to {} ms.\n",
                             prediction.policy,
                             step_ms_text(step.same_hour_low90),
                             step_ms_text(step.same_hour_high90))
                       : "";
}

constexpr const char* kIndent = "                   ";

/// What the peak consists of, the largest parts first, and when it is reached where that is known;
/// below the label of the peak.
std::string memory_peak_text(const MemoryParts& memory,
                             const std::optional<MemoryCurve>& curve,
                             const Screen& screen) {
  constexpr double kShownMib = 0.05;
  constexpr std::size_t kColumns = 80;
  constexpr std::size_t kAnyWidth = 1000;
  std::vector<std::string> parts;
  for (const MemoryPart& part : memory.parts) {
    if (part.mib >= kShownMib) {
      parts.push_back(fmt::format("{} {}", part.name, memory_text(part.mib)));
    }
  }
  std::vector<std::string> lines =
      wrapped_list(parts, screen.wide ? kAnyWidth : kColumns - std::string_view(kIndent).size());
  if (curve) {
    const MemoryPoint& peak = curve->points[at(curve->peak)];
    lines.push_back(fmt::format("at {:.3f} ms of step {}, {} in the {}",
                                peak.ms,
                                curve->step,
                                peak.event,
                                peak.backward ? "backward" : "forward"));
  }
  std::string text;
  for (const std::string& line : lines) {
    text += kIndent + line + "\n";
  }
  return text;
}

/// The collectives of a step, what of them hides, and what a rank is idle for beside them.
std::string communication_text(const PredictionSummary& s) {
  const double not_hidden = s.communication_ms * (1 - s.overlap_fraction);
  const double exposed = std::min(s.exposed_transfer_ms(), not_hidden);
  const double hidden = s.communication_ms - exposed;
  std::string text = fmt::format(
      "communication      {:.3f} ms of collectives: {:.3f} ms hidden ({}), {:.3f} ms exposed\n",
      s.communication_ms,
      hidden,
      percent(s.communication_ms > 0 ? hidden / s.communication_ms : 0),
      exposed);
  constexpr double kShown = 0.001;  // Of the step.
  if (const double beside = s.exposed_transfer_ms() - exposed;
      beside > kShown * s.step_time_ms.mean) {
    text += fmt::format(
        "                   {:.3f} ms more exposed: copies around collectives, and hosts that "
        "start them late; {:.3f} ms exposed in all\n",
        beside,
        s.exposed_transfer_ms());
  }
  return text;
}

}  // namespace

std::string run_text(const Scenario& scenario,
                     const Prediction& prediction,
                     const Screen& screen,
                     const std::vector<std::string>& needs,
                     const std::string& training,
                     const MemoryParts& memory) {
  const PredictionSummary& s = prediction.summary;
  std::string text = header_text(scenario, prediction);
  text += fmt::format("policy {}\n\n", prediction.policy);
  const double width = screen.wide ? 0 : s.step_time_ms.width90();
  const auto ms = [&](double value) { return mean_text(value, width); };
  text += fmt::format("step time          {} ms mean, 90 % interval {} to {}\n",
                      ms(s.step_time_ms.mean),
                      ms(s.step_time_ms.low90),
                      ms(s.step_time_ms.high90));
  if (s.step_time_ms.drifts()) {
    text += fmt::format("                   {} to {} in the hour of its calibration\n",
                        ms(s.step_time_ms.same_hour_low90),
                        ms(s.step_time_ms.same_hour_high90));
  }
  text += fmt::format("                   {} ms p50, {} p95, {} p99; longest of {} step{} {}\n",
                      ms(s.step_time_ms.p50),
                      ms(s.step_time_ms.p95),
                      ms(s.step_time_ms.p99),
                      scenario.steps - scenario.warmup_steps,
                      scenario.steps - scenario.warmup_steps == 1 ? "" : "s",
                      ms(s.step_time_ms.max));
  text += "throughput         ";
  text += scenario.model.tokens_unknown
              ? ""
              : fmt::format("{:.0f} useful tokens/s, ", s.useful_tokens_per_s());
  text += fmt::format("{:.1f} samples/s\n", s.samples_per_s());
  text += fmt::format("padding ratio      {}\n", percent(s.padding_ratio()));
  text += fmt::format("rank token spread  {:.1f} useful tokens, fullest rank less emptiest\n",
                      s.rank_token_spread);
  text += communication_text(s);
  for (const CollectiveOrigin& origin : prediction.collective_origins) {
    text += fmt::format("                   {}\n", origin.text);
  }
  text += fmt::format("waiting            {:.3f} ms for slower ranks\n", s.waiting_for_ranks_ms);
  text += fmt::format("scaling efficiency {}\n", percent(s.scaling_efficiency()));
  text += fmt::format(
      "peak memory        {}{}\n",
      screen.wide ? fmt::format("{:.1f} MiB", s.peak_memory_mib) : memory_text(s.peak_memory_mib),
      states_activations(scenario.model) ? "" : " without activations");
  const MemoryParts held = memory.parts.empty() && prediction.memory_curve
                               ? memory_parts(*prediction.memory_curve)
                               : memory;
  if (!held.parts.empty()) {
    text += memory_peak_text(held, prediction.memory_curve, screen);
  }
  if (prediction.largest_memory_mib > s.peak_memory_mib &&
      memory_text(prediction.largest_memory_mib) != memory_text(s.peak_memory_mib)) {
    text += fmt::format(
        "                   {} in the largest batch of the epoch, which no simulated "
        "step has\n",
        memory_text(prediction.largest_memory_mib));
  }
  if (const auto& budget = prediction.token_budget) {
    text +=
        budget->tokens > 0
            ? fmt::format("largest batch that fits: {} padded tokens a micro-batch, at length {}\n",
                          fmt::group_digits(budget->tokens),
                          budget->length)
            : fmt::format("largest batch that fits: none, not even one sample of length {}\n",
                          budget->length);
  }
  text += "\n";

  text += ranks_table(prediction, screen).text(screen);
  text += needs_text(prediction.policy, needs) + training;
  return text + shape_text({&prediction, 1}, screen) + varlen_section({&prediction}, screen) +
         warnings_text({&prediction, 1});
}

std::string planning_text(const std::vector<Prediction>& predictions,
                          const std::vector<double>& planning_seconds) {
  double largest_ms = 0;
  std::string slowest;
  for (std::size_t i = 0; i < planning_seconds.size(); ++i) {
    const auto steps = predictions[i].training ? predictions[i].training->most_steps : 0;
    const double ms = steps > 0 ? planning_seconds[i] / static_cast<double>(steps) * 1e3 : 0;
    if (slowest.empty() || ms > largest_ms) {
      largest_ms = ms;
      slowest = predictions[i].policy;
    }
  }
  return slowest.empty()
             ? ""
             : fmt::format(
                   "planning on this host: at most {:.2g} ms a step ({})", largest_ms, slowest);
}

std::string compare_text(const Scenario& scenario,
                         const std::vector<Prediction>& predictions,
                         const Screen& screen,
                         const std::string& training) {
  const std::vector<const Prediction*> ranked = ranked_by_throughput(predictions);
  const Recommendation recommendation = recommend(scenario, predictions);
  std::vector<Interval90> speeds;
  std::vector<PredictionSummary> rows;
  std::vector<std::vector<std::string>> names;
  std::vector<Paint> paints;
  bool any_reference = false;
  bool any_misfit = false;
  for (const Prediction* prediction : ranked) {
    rows.push_back(prediction->summary);
    rows.back().peak_memory_mib = prediction->largest_memory_mib;  // It decides what fits.
    speeds.push_back(speed_interval(prediction->summary));
    const bool reference = is_reference(scenario, prediction->policy);
    any_reference = any_reference || reference;
    const bool misfit = prediction->out_of_memory.has_value();
    any_misfit = any_misfit || misfit;
    names.push_back({prediction->policy + (reference ? " *" : "") + (misfit ? " !" : "")});
    paints.push_back(row_paint(*prediction, reference, recommendation));
  }
  Table table =
      table_of<PredictionSummary>(summary_columns(), rows, screen, paints, {"policy"}, names);
  table.add_intervals("useful tokens/s, 90 % interval", std::move(speeds));
  std::string text = header_text(scenario, predictions.front()) + "\n" + table.text(screen);
  if (any_reference) {
    text += "* a reference case on data of its own: not a choice\n";
  }
  if (any_misfit) {
    text += "! does not fit into memory: not a choice\n";
  }
  text += "\n" + painted(recommendation_text(recommendation), Paint::Strong, screen) + "\n";
  if (const Prediction* best = recommended(scenario, predictions)) {
    text += same_hour_text(*best);
    text += needs_text(best->policy, training_needs(scenario, *best));
  }
  return text + training_text(scenario, ranked, screen) + training +
         shape_text(predictions, screen) + varlen_section(ranked, screen) +
         warnings_text(predictions);
}

}  // namespace stepsim
