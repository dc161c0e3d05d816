#include "sim/report/tune/tune_report.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "costmodel/base/mapped.h"
#include "costmodel/terminal/table.h"
#include "sim/predict/metrics.h"
#include "sim/report/csv.h"
#include "sim/report/notes.h"
#include "sim/report/number_text.h"
#include "sim/scenario/stepsim_command.h"
#include "sim/study/recommendation.h"

namespace stepsim {
namespace {

constexpr const char* kLeftOut = "tokens left out";

std::string share_text(std::size_t count, std::size_t of) {
  return fmt::format(
      "{:>9} ({:.1f} %)",
      count,
      100.0 * static_cast<double>(count) / static_cast<double>(std::max<std::size_t>(of, 1)));
}

const std::string& tuned_policy(const TuneSpace& space, const TunedPoint& point) {
  return space.policies()[point.choice.policy].name;
}

/// "policy bucketing: batch_size 12, bucket_cap 8 MiB"
std::string named(const TuneSpace& space, const TunedPoint& point) {
  const std::string text = space.text(point.choice);
  return tuned_policy(space, point) + (text.empty() ? "" : ": " + text);
}

std::string certificate_text(const TuneResult& result) {
  if (result.finalists.empty()) {
    return result.open > 0
               ? fmt::format(
                     "The search was ended: {} of {} points are open.", result.open, result.points)
               : std::string("Every point was ruled out.");
  }
  if (result.open > 0) {
    return fmt::format(
        "The search was ended: {} of {} points are open, and could be up to {:.1f} % faster.",
        result.open,
        result.points,
        100 * result.open_gain);
  }
  return result.bounded == 0
             ? std::string("Every point that can run was priced: this is the fastest of them.")
             : fmt::format(
                   "Certificate: nothing else in this space is more than {:.2f} % faster, by "
                   "bounds on steps without noise.",
                   100 * result.certificate);
}

/// What became of the points: how many, and the words for it.
std::vector<std::pair<std::size_t, std::string>> count_rows(const TuneResult& result) {
  std::vector<std::pair<std::size_t, std::string>> rows;
  const auto add = [&](std::size_t count, const std::string& what) {
    if (count > 0) {
      rows.emplace_back(count, what);
    }
  };
  add(result.refused, "refused: " + printable(result.first_refusal));
  add(result.out_of_memory, "out of memory");
  add(result.outside_limits, "outside the limits");
  add(result.same_buckets, "make the same buckets as another");
  add(result.bounded,
      "cannot be faster, by their bounds" +
          (result.close > 0 ? fmt::format("; {} of them could be nearly as fast", result.close)
                            : std::string()));
  add(result.priced,
      "priced in full" + (result.front_priced > 0
                              ? fmt::format(", {} of them for the front", result.front_priced)
                              : std::string()));
  add(result.open, "open");
  return rows;
}

std::string count_lines(const TuneResult& result) {
  std::string text = fmt::format("{:>9} points\n", result.points);
  for (const auto& [count, what] : count_rows(result)) {
    text += share_text(count, result.points) + " " + what + "\n";
  }
  return text;
}

/// Whether any of these points leaves tokens of an epoch out.
bool leave_out(const std::vector<TunedPoint>& points) {
  return std::ranges::any_of(points, [](const TunedPoint& point) { return point.left_out > 0; });
}

/// A share of an epoch that is not 0 does not read "0.0 %".
std::string left_out_text(double share) {
  constexpr double kShown = 0.0005;
  return share > 0 && share < kShown ? "less than 0.1 %" : percent(share);
}

/// The front as a table, its fastest points where it is long.
std::string front_text(const TuneSpace& space, const TuneResult& result, const Screen& screen) {
  constexpr std::size_t kShown = 12;
  if (result.front.size() < 2) {
    return "";
  }
  const bool shows_left_out = leave_out(result.front);
  std::vector<std::string> header = {
      "", "useful tokens/s", "memory MiB", "order change", "setting"};
  if (shows_left_out) {
    header.insert(header.end() - 1, kLeftOut);
  }
  Table table(header);
  for (std::size_t i = 0; i < std::min(kShown, result.front.size()); ++i) {
    const TunedPoint& point = result.front[i];
    std::vector<std::string> cells = {fmt::format("{}", i + 1),
                                      fmt::format("{:.0f}", point.price.useful_tokens_per_s()),
                                      fmt::format("{:.1f}", point.price.memory_mib),
                                      percent(point.displacement),
                                      printable(named(space, point))};
    if (shows_left_out) {
      cells.insert(cells.end() - 1, left_out_text(point.left_out));
    }
    table.add(std::move(cells));
  }
  std::string text =
      fmt::format("\nless memory{}, and the fastest that has it (without noise)\n\n{}",
                  shows_left_out ? ", less change of order or fewer tokens left out"
                                 : " or less change of order",
                  table.text(screen));
  if (result.front.size() > kShown) {
    text += fmt::format("{} more: --csv, --json\n", result.front.size() - kShown);
  }
  if (result.front_open > 0) {
    text += fmt::format("{} points that were not priced could belong here\n", result.front_open);
  }
  return text;
}

/// What the finalists' predictions warn of, each once.
std::vector<std::string> tune_warnings(const TuneSpace& space, const TuneResult& result) {
  return note_texts(mapped(result.finalists, [&](const TunedPoint& point) {
    Prediction prediction;
    prediction.policy = named(space, point);
    prediction.notes = point.drawn.notes;
    return prediction;
  }));
}

Json tune_price_json(const TunePrice& price) {
  Json json = {{"step_ms", price.step_ms},
               {"useful_tokens_per_step", price.useful_tokens},
               {"useful_tokens_per_s", price.useful_tokens_per_s()},
               {"peak_memory_mib", price.memory_mib}};
  if (price.high90_ms > price.low90_ms) {
    json["interval90_ms"] = {price.low90_ms, price.high90_ms};
  }
  return json;
}

Json tuned_json(const TuneSpace& space, const TunedPoint& point) {
  return {{"policy", tuned_policy(space, point)},
          {"setting", named(space, point)},
          {"set", mapped(space.settings(point.choice), &Setting::text)},
          {"without_noise", tune_price_json(point.price)},
          {"bound_useful_tokens_per_s", point.bound_tokens_per_s},
          {"samples_per_step", point.samples},
          {"order_change", point.displacement},
          {"tokens_left_out", point.left_out}};
}

std::string speed_text(const TunePrice& price) {
  return fmt::format(
      "{:.0f} useful tokens/s, {:.3f} ms a step", price.useful_tokens_per_s(), price.step_ms);
}

std::string as_it_stands(const TuneReference& own) {
  return printable(own.policy) + " as the scenario has it";
}

/// What the fastest setting gains, where that is no reason to change anything.
std::string keep_text(const TuneSpace& space, const TuneResult& result, const TuneReference& own) {
  const std::string keep = fmt::format("Keep {}: {}", as_it_stands(own), speed_text(own.price));
  if (own.gain.gain <= 0) {
    return keep + "; no setting of this space is faster.";
  }
  const std::string gain =
      own.gain.gain < kSmallestGain
          ? fmt::format("less than {:.0f} %", 100 * kSmallestGain)
          : fmt::format(
                "{} ({}), too close to tell", percent(own.gain.gain), certainty_text(own.gain));
  return fmt::format("{}; the fastest setting, {}, gains {}.",
                     keep,
                     printable(named(space, result.finalists.front())),
                     gain);
}

/// What a setting leaves out of an epoch where that is more than the scenario's own; else empty.
std::string losses_text(const TunedPoint& best, const TuneReference* own) {
  const double kept_out = own != nullptr ? own->left_out : 0;
  if (best.left_out <= kept_out) {
    return "";
  }
  const std::string of_own =
      own != nullptr
          ? fmt::format(
                ", {} {}", as_it_stands(*own), kept_out > 0 ? left_out_text(kept_out) : "none")
          : std::string();
  return fmt::format(
      " It leaves {} of an epoch's tokens out (lost or cropped){}; --keep-all-samples searches "
      "without such settings.",
      left_out_text(best.left_out),
      of_own);
}

}  // namespace

std::string tune_headline(const TuneSpace& space, const TuneResult& result) {
  if (result.finalists.empty()) {
    return fmt::format("No setting {} fits into memory.",
                       result.open > 0 ? "that was tried" : "of this space");
  }
  const TunedPoint& best = result.finalists.front();
  const TuneReference* own = best_reference(result);
  if (own != nullptr && !is_better(result)) {
    return keep_text(space, result, *own);
  }
  std::string text =
      fmt::format("Use {}: {}", printable(named(space, best)), speed_text(best.drawn));
  if (own != nullptr) {
    text += fmt::format("; {} over {}{}",
                        signed_percent(own->gain.gain),
                        as_it_stands(*own),
                        own->meets_limits ? "" : ", which is outside the limits");
  }
  return text + "." + losses_text(best, own);
}

std::string tune_text(const Scenario& scenario,
                      const TuneSpace& space,
                      const TuneResult& result,
                      const Screen& screen) {
  std::string text = fmt::format("{}: {} ranks; {} policies, {} keys for all of them\n\n",
                                 printable(scenario.name),
                                 scenario.ranks,
                                 space.policies().size(),
                                 space.shared().size());
  text += count_lines(result) + "\n";
  if (result.finalists.empty()) {
    return text + tune_headline(space, result) + "\n" + certificate_text(result) + "\n";
  }
  std::vector<std::string> header = {"",
                                     "step ms",
                                     "90 % interval",
                                     "useful tokens/s",
                                     "the best is faster by, 90 %",
                                     "samples a step",
                                     "memory MiB",
                                     "order change",
                                     "remark",
                                     "setting"};
  const bool shows_left_out = leave_out(result.finalists);
  if (shows_left_out) {
    header.insert(header.end() - 2, kLeftOut);
  }
  Table table(header);
  for (std::size_t i = 0; i < result.finalists.size(); ++i) {
    const TunedPoint& point = result.finalists[i];
    const bool best = i == 0;
    std::vector<std::string> cells = {fmt::format("{}", i + 1),
                                      fmt::format("{:.3f}", point.drawn.step_ms),
                                      interval(point.drawn.low90_ms, point.drawn.high90_ms),
                                      fmt::format("{:.0f}", point.drawn.useful_tokens_per_s()),
                                      best ? ""
                                           : fmt::format("{:+.1f} to {:+.1f} %",
                                                         100 * point.gain.interval.first,
                                                         100 * point.gain.interval.second),
                                      fmt::format("{:.1f}", point.samples),
                                      fmt::format("{:.1f}", point.drawn.memory_mib),
                                      percent(point.displacement),
                                      best                      ? "fastest"
                                      : point.gain.is_certain() ? "slower"
                                                                : "too close to tell",
                                      printable(named(space, point))};
    if (shows_left_out) {
      cells.insert(cells.end() - 2, left_out_text(point.left_out));
    }
    table.add(std::move(cells));
  }
  text += table.text(screen);
  if (result.alike > 0) {
    text += fmt::format("{} more come to the same as one of these\n", result.alike);
  }
  text += "\n" + tune_headline(space, result) + "\n" + certificate_text(result) + "\n";
  text += fmt::format(
      "Regret: in 95 of 100 draws of the profile's errors no finalist is more than {:.1f} % "
      "faster than it.\n",
      100 * result.regret95);
  text += front_text(space, result, screen);
  const std::vector<std::string> warnings = tune_warnings(space, result);
  text += warnings.empty() ? "" : "\n";
  for (const std::string& warning : warnings) {
    text += "warning: " + warning + "\n";
  }
  const TunedPoint& best = result.finalists.front();
  const std::string command =
      stepsim_command("run", scenario, tuned_policy(space, best), space.settings(best.choice));
  return fmt::format(
      "{}\nthe {} one in detail:\n  {}\n", text, is_better(result) ? "best" : "fastest", command);
}

Json tune_json(const Scenario& scenario, const TuneSpace& space, const TuneResult& result) {
  Json json = {{"format", "stepsim-tune/1"},
               {"scenario", scenario.name},
               {"set", mapped(result.overrides, &Setting::text)},
               {"points", result.points},
               {"refused", result.refused},
               {"out_of_memory", result.out_of_memory},
               {"outside_limits", result.outside_limits},
               {"same_buckets", result.same_buckets},
               {"bounded", result.bounded},
               {"bounded_close", result.close},
               {"priced", result.priced},
               {"priced_for_front", result.front_priced},
               {"front_open", result.front_open},
               {"open", result.open},
               {"certificate", result.certificate},
               {"open_gain", result.open_gain},
               {"regret95", result.regret95},
               {"headline", tune_headline(space, result)},
               {"is_better", is_better(result)},
               {"warnings", tune_warnings(space, result)}};
  Json axes = Json::array();
  for (const TuneAxis& axis : space.shared()) {
    axes.push_back(
        {{"key", axis.axis.key}, {"values", mapped(axis.axis.values, &Setting::value_text)}});
  }
  for (const TuneSpace::Policy& policy : space.policies()) {
    for (const SweepAxis& axis : policy.axes) {
      axes.push_back({{"key", axis.key}, {"values", mapped(axis.values, &Setting::value_text)}});
    }
  }
  json["space"] = {{"policies", mapped(space.policies(), &TuneSpace::Policy::name)},
                   {"axes", axes}};
  json["references"] = Json::array();
  for (const TuneReference& own : result.references) {
    Json one = tune_price_json(own.price);
    one["policy"] = own.policy;
    one["tokens_left_out"] = own.left_out;
    one["meets_limits"] = own.meets_limits;
    json["references"].push_back(one);
  }
  json["finalists"] = Json::array();
  for (const TunedPoint& point : result.finalists) {
    Json one = tuned_json(space, point);
    one["with_noise"] = tune_price_json(point.drawn);
    one["best_is_faster_share"] = point.gain.faster_share;
    one["best_gain_interval90"] = {point.gain.interval.first, point.gain.interval.second};
    one["too_close_to_tell"] = !point.gain.is_certain();
    json["finalists"].push_back(one);
  }
  json["front"] =
      mapped(result.front, [&](const TunedPoint& point) { return tuned_json(space, point); });
  return json;
}

Json tune_page_json(const Scenario& scenario, const TuneSpace& space, const TuneResult& result) {
  constexpr std::size_t kMaxPoints = 1000;
  Json json = tune_json(scenario, space, result);
  json["certificate_words"] = certificate_text(result);
  json["counts"] = mapped(count_rows(result), [](const auto& row) {
    return Json::array({row.first, row.second});
  });
  // Evenly spaced, since the fastest of many points are all alike.
  const std::size_t pitch = (result.all.size() + kMaxPoints - 1) / kMaxPoints;
  json["points_priced"] = Json::array();
  for (std::size_t i = 0; i < result.all.size(); i += pitch) {
    json["points_priced"].push_back(tuned_json(space, result.all[i]));
  }
  return json;
}

Json tune_own_json(const Prediction& prediction, int warmup_steps) {
  TunePrice price;
  const std::map<int, double> times = step_times(prediction.steps, warmup_steps);
  price.step_ms = mean(mapped(times, [](const auto& step) { return step.second; }));
  price.useful_tokens = prediction.summary.useful_tokens_per_step;
  price.memory_mib = prediction.summary.peak_memory_mib;
  return {{"policy", prediction.policy},
          {"setting", prediction.policy + " as it is now"},
          {"without_noise", tune_price_json(price)},
          {"samples_per_step", prediction.summary.samples_per_step},
          {"order_change", prediction.training ? Json(prediction.training->displacement) : Json()}};
}

std::string tune_csv(const TuneSpace& space, const TuneResult& result) {
  std::string text =
      "list,number,policy,setting,step_ms,useful_tokens_per_s,peak_memory_mib,order_change,"
      "tokens_left_out\n";
  const auto add = [&](const char* list, const std::vector<TunedPoint>& points, bool noise) {
    for (std::size_t i = 0; i < points.size(); ++i) {
      const TunePrice& price = noise ? points[i].drawn : points[i].price;
      text += fmt::format(
          "{},{},{},{},{},{},{},{},{}\n",
          list,
          i + 1,
          csv_field(tuned_policy(space, points[i])),
          csv_field(fmt::format(
              "{}", fmt::join(mapped(space.settings(points[i].choice), &Setting::text), "; "))),
          price.step_ms,
          price.useful_tokens_per_s(),
          price.memory_mib,
          points[i].displacement,
          points[i].left_out);
    }
  };
  add("finalist", result.finalists, true);
  add("front", result.front, false);
  return text;
}

}  // namespace stepsim
