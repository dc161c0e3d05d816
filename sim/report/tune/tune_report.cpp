#include "sim/report/tune/tune_report.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "costmodel/base/mapped.h"
#include "costmodel/terminal/table.h"
#include "costmodel/terminal/wrap.h"
#include "sim/predict/metrics.h"
#include "sim/report/columns.h"
#include "sim/report/notes.h"
#include "sim/report/number_text.h"
#include "sim/scenario/stepsim_command.h"
#include "sim/study/recommendation.h"

namespace stepsim {
namespace {

constexpr const char* kFinalists = "finalist";
constexpr const char* kFront = "front";

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
               ? fmt::format("The search was ended before it looked at {} of {} settings.",
                             result.open,
                             result.points)
               : std::string("No setting can run.");
  }
  if (result.open > 0) {
    return fmt::format(
        "The search was ended before it looked at {} of {} settings, which could be up to {:.1f} % "
        "faster.",
        result.open,
        result.points,
        100 * result.open_gain);
  }
  constexpr double kShown = 0.00005;
  if (result.bounded == 0) {
    return "Every setting that can run was predicted: " +
           (result.certificate < kShown
                ? std::string("this is the fastest of them.")
                : fmt::format("none of them is more than {:.2f} % faster without noise.",
                              100 * result.certificate));
  }
  return fmt::format(
      "None of the other settings can be{} faster: that much follows from the least time that each "
      "of them takes, without noise.",
      result.certificate < kShown ? ""
                                  : fmt::format(" more than {:.2f} %", 100 * result.certificate));
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
  add(result.outside_limits, "outside the limits (--samples, --tokens: stepsim tune --help)");
  add(result.same_buckets, "make the same buckets as another setting");
  add(result.bounded,
      "cannot be faster, even with the least time that they take" +
          (result.close > 0 ? fmt::format("; {} of them could be nearly as fast", result.close)
                            : std::string()));
  add(result.priced,
      "predicted" + (result.front_priced > 0
                         ? fmt::format(", {} of them for less memory or less change of order",
                                       result.front_priced)
                         : std::string()));
  add(result.open, "not looked at");
  return rows;
}

std::string count_lines(const TuneResult& result) {
  std::string text = fmt::format("{:>9} settings\n", result.points);
  for (const auto& [count, what] : count_rows(result)) {
    text += share_text(count, result.points) + " " + what + "\n";
  }
  return text;
}

/// A share of an epoch that is not 0 does not read "0.0 %".
std::string left_out_text(double share) {
  constexpr double kShown = 0.0005;
  return share > 0 && share < kShown ? "less than 0.1 %" : percent(share);
}

/// A point of a list: the finalists, or the front.
struct TuneRow {
  const TuneSpace* space;
  const TunedPoint* point;
  const char* list;
  std::int64_t number;
  bool simplified;  ///< TuneResult::simplified

  /// The finalists are drawn with noise.
  [[nodiscard]] const TunePrice& price() const {
    return is_finalist() ? point->drawn : point->price;
  }
  [[nodiscard]] bool is_finalist() const { return list == kFinalists; }
};

std::vector<TuneRow> rows_of(const TuneSpace& space,
                             const std::vector<TunedPoint>& points,
                             const char* list,
                             bool simplified = false) {
  std::vector<TuneRow> rows;
  rows.reserve(points.size());
  for (const TunedPoint& point : points) {
    rows.push_back({&space, &point, list, static_cast<std::int64_t>(rows.size()) + 1, simplified});
  }
  return rows;
}

/// Whether any of these points leaves tokens of an epoch out.
bool leave_out(std::span<const TuneRow> rows) {
  return std::ranges::any_of(rows, [](const TuneRow& row) { return row.point->left_out > 0; });
}

bool are_finalists(std::span<const TuneRow> rows) {
  return !rows.empty() && rows.front().is_finalist();
}

std::string remark_of(const TuneRow& row) {
  const std::int64_t fastest = row.simplified ? 2 : 1;
  return row.number == fastest          ? "fastest"
         : row.number == 1              ? "changes less"
         : row.point->gain.is_certain() ? "slower"
                                        : "too close to tell";
}

/// By how much the first finalist is faster; below 0: slower.
Cell best_gain(const TuneRow& row) {
  return row.number == 1 ? std::string()
                         : fmt::format("{:+.1f} to {:+.1f} %",
                                       100 * row.point->gain.interval.first,
                                       100 * row.point->gain.interval.second);
}

// clang-format off
const Column<TuneRow> kTuneColumns[] = {
    {nullptr, "list", [](const TuneRow& r) -> Cell { return std::string(r.list); }},
    {nullptr, "number", [](const TuneRow& r) -> Cell { return r.number; }, "", FigureFormat::Whole, 10},
    {nullptr, "policy", [](const TuneRow& r) -> Cell { return tuned_policy(*r.space, *r.point); }},
    {nullptr, "setting", [](const TuneRow& r) -> Cell {
       return fmt::format("{}", fmt::join(mapped(r.space->settings(r.point->choice), &Setting::text), "; "));
     }},
    {nullptr, "step_ms", [](const TuneRow& r) -> Cell { return r.price().step_ms; },
     "step ms", FigureFormat::Milliseconds, 20, nullptr, true, are_finalists},
    {nullptr, nullptr, [](const TuneRow& r) -> Cell { return r.price().low90_ms; },
     "90 % interval", FigureFormat::Interval, 30,
     [](const TuneRow& r) -> Cell { return r.price().high90_ms; }, true, are_finalists, false, if_wide<TuneRow>},
    {nullptr, "useful_tokens_per_s", [](const TuneRow& r) -> Cell { return r.price().useful_tokens_per_s(); },
     "useful tokens/s", FigureFormat::Whole, 40},
    {nullptr, nullptr, best_gain,
     "1 faster by", FigureFormat::Words, 50, nullptr, true, are_finalists},
    {nullptr, nullptr, [](const TuneRow& r) -> Cell { return r.point->samples; },
     "samples a step", FigureFormat::Tenths, 60, nullptr, true, are_finalists, false, if_wide<TuneRow>},
    {nullptr, "peak_memory_mib", [](const TuneRow& r) -> Cell { return r.price().memory_mib; }},
    {nullptr, nullptr, [](const TuneRow& r) -> Cell { return memory_text(r.price().memory_mib); },
     "memory", FigureFormat::Words, 70},
    {nullptr, "order_change", [](const TuneRow& r) -> Cell { return r.point->displacement; },
     "order change", FigureFormat::Percent, 80},
    {nullptr, "tokens_left_out", [](const TuneRow& r) -> Cell { return r.point->left_out; }},
    {nullptr, nullptr, [](const TuneRow& r) -> Cell { return left_out_text(r.point->left_out); },
     "tokens left out", FigureFormat::Words, 90, nullptr, true, leave_out},
    {nullptr, nullptr, [](const TuneRow& r) -> Cell { return remark_of(r); }, "remark", FigureFormat::Words, 100, nullptr, true, are_finalists},
    {nullptr, nullptr, [](const TuneRow& r) -> Cell { return printable(named(*r.space, *r.point)); },
     "setting", FigureFormat::Words, 110, nullptr, true, nullptr, false, if_wide<TuneRow>},
};
// clang-format on

/// The settings of a table's rows by their number, where the table has no room for them.
std::string settings_text(std::span<const TuneRow> rows, const Screen& screen) {
  if (screen.wide) {
    return "";
  }
  constexpr std::size_t kColumns = 80;
  constexpr std::size_t kLabelWidth = 4;
  std::string text = "\n";
  for (const TuneRow& row : rows) {
    std::string label = fmt::format("{:>2}  ", row.number);
    const std::string& policy = tuned_policy(*row.space, *row.point);
    std::vector<std::string> words =
        mapped(row.space->words(row.point->choice),
               [](const std::string& word) { return printable(word); });
    if (words.empty()) {
      words.push_back(printable(policy));
    } else {
      words.front() = printable(policy) + ": " + words.front();
    }
    for (const std::string& line : wrapped_list(words, kColumns - kLabelWidth)) {
      text += label + line + "\n";
      label = std::string(kLabelWidth, ' ');
    }
  }
  return text;
}

/// The front as a table, its fastest points where it is long.
std::string front_text(const TuneSpace& space, const TuneResult& result, const Screen& screen) {
  constexpr std::size_t kShown = 12;
  if (result.front.size() < 2) {
    return "";
  }
  std::vector<TuneRow> rows = rows_of(space, result.front, kFront);
  const bool shows_left_out = leave_out(rows);
  rows.erase(rows.begin() + static_cast<std::ptrdiff_t>(std::min(kShown, rows.size())), rows.end());
  std::string text = fmt::format("\nthe fastest settings with less memory{} (without noise)\n\n{}",
                                 shows_left_out ? ", less change of order or fewer tokens left out"
                                                : " or less change of order",
                                 table_of<TuneRow>(kTuneColumns, rows, screen).text(screen)) +
                     settings_text(rows, screen);
  if (result.front.size() > kShown) {
    text +=
        fmt::format("{} more: in the files of --csv and --json\n", result.front.size() - kShown);
  }
  if (result.front_open > 0) {
    text +=
        fmt::format("{} settings that were not predicted could belong here\n", result.front_open);
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
  const std::string keep = fmt::format(
      "{}: keep {} ({})", nothing_to_gain_text(own.gain), as_it_stands(own), speed_text(own.price));
  if (own.gain.gain <= 0) {
    return keep + "; no setting of this space is faster.";
  }
  return fmt::format(
      "{}. The fastest setting is {}{}.",
      keep,
      printable(named(space, result.finalists.front())),
      own.gain.gain < kSmallestGain
          ? ""
          : fmt::format(" ({}, {})", signed_percent(own.gain.gain), certainty_text(own.gain)));
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
  text += ".";
  if (result.simplified) {
    text += fmt::format(" What else it could change gains {:.1f} % at most.",
                        -100 * result.finalists[1].gain.interval.first);
  }
  return text + losses_text(best, own);
}

std::string tune_text(const Scenario& scenario,
                      const TuneSpace& space,
                      const TuneResult& result,
                      const Screen& screen,
                      const std::vector<std::string>& needs,
                      const std::string& training) {
  std::string text = fmt::format("{}: {} ranks; {} polic{}, {} key{} for all of them\n\n",
                                 printable(scenario.name),
                                 scenario.ranks,
                                 space.policies().size(),
                                 space.policies().size() == 1 ? "y" : "ies",
                                 space.shared().size(),
                                 space.shared().size() == 1 ? "" : "s");
  text += count_lines(result) + "\n";
  if (result.finalists.empty()) {
    return text + tune_headline(space, result) + "\n" + certificate_text(result) + "\n";
  }
  const std::vector<TuneRow> finalists =
      rows_of(space, result.finalists, kFinalists, result.simplified);
  text += table_of<TuneRow>(kTuneColumns, finalists, screen).text(screen) +
          settings_text(finalists, screen);
  if (result.alike > 0) {
    text += fmt::format("{} more come to the same as one of these\n", result.alike);
  }
  text += "\n" + tune_headline(space, result) + "\n";
  for (const std::string& need : needs) {
    text += "note: with that setting, " + need + "\n";
  }
  text += certificate_text(result) + "\n";
  text += fmt::format(
      "Should the profile's prices be off within their errors: in 95 of 100 such cases none of the "
      "settings above is more than {:.1f} % faster than it.\n",
      100 * result.regret95);
  text += training + front_text(space, result, screen);
  const std::vector<std::string> warnings = tune_warnings(space, result);
  text += warnings.empty() ? "" : "\n";
  for (const std::string& warning : warnings) {
    text += "warning: " + warning + "\n";
  }
  const TunedPoint& best = result.finalists.front();
  const std::string command =
      is_better(result)
          ? stepsim_command("run", scenario, tuned_policy(space, best), space.settings(best.choice))
          : stepsim_command("run", scenario, best_reference(result)->policy, {});
  return fmt::format("{}\nin detail:\n  {}\n", text, command);
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
               {"changes_less", result.simplified},
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
  for (const TuneRow& row : rows_of(space, result.finalists, kFinalists, result.simplified)) {
    const TunedPoint& point = *row.point;
    Json one = tuned_json(space, point);
    one["remark"] = remark_of(row);
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
  price.memory_mib = prediction.largest_memory_mib;
  return {{"policy", prediction.policy},
          {"setting", prediction.policy + " as it is now"},
          {"without_noise", tune_price_json(price)},
          {"samples_per_step", prediction.summary.samples_per_step},
          {"order_change", prediction.training ? Json(prediction.training->displacement) : Json()}};
}

std::string tune_csv(const TuneSpace& space, const TuneResult& result) {
  std::string text = csv_header<TuneRow>(kTuneColumns);
  for (const auto& [points, list] :
       {std::pair(&result.finalists, kFinalists), std::pair(&result.front, kFront)}) {
    for (const TuneRow& row : rows_of(space, *points, list)) {
      text += csv_line<TuneRow>(kTuneColumns, row);
    }
  }
  return text;
}

}  // namespace stepsim
