#include "sim/study/solve.h"

#include <cmath>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "costmodel/base/input_error.h"
#include "costmodel/base/parse_units.h"
#include "costmodel/io/json_file.h"
#include "costmodel/terminal/progress.h"
#include "sim/ask/question.h"
#include "sim/report/csv.h"
#include "sim/report/notes.h"
#include "sim/study/recommendation.h"
#include "sim/study/sweep.h"

namespace stepsim {

namespace {

struct SolveQuestion {
  std::string key;
  std::string step_time;
  std::string policy;
};

constexpr const char* kSolveUsage =
    "usage: stepsim solve SCENARIO --key KEY=LOW..HIGH --step-time TIME [options]\n\n"
    "Finds the value of one scenario key at which the predicted mean step is the measured one: a\n"
    "cost that nobody can measure by itself, from a step time that everybody can.\n\n"
    "KEY must take real numbers or values with a unit, since a whole number cannot be approached;\n"
    "the unit of HIGH holds for both ends.\n\n"
    "examples:\n"
    "  stepsim solve my_job.toml --key interference.strength=0..2 --step-time \"736.7 ms\"\n"
    "  stepsim solve my_job.toml --key \"host.enqueue=0..100 us\" --step-time \"41.2 ms\"\n";

/// "interference.strength" as ("[interference]", "strength"); a policy's as ("[[policy]] NAME",
/// …).
std::pair<std::string, std::string> table_and_key(const std::string& path) {
  const std::size_t dot = path.rfind('.');
  if (dot == std::string::npos) {
    return {"", path};
  }
  const std::string table = path.substr(0, dot);
  const std::string key = path.substr(dot + 1);
  const std::string policy = "policy.";
  return {
      table.starts_with(policy) ? "[[policy]] " + table.substr(policy.size()) : "[" + table + "]",
      key};
}

std::string toml_line(const SolveRange& range, double value) {
  const std::string text = value_text(range, value);
  return table_and_key(range.key).second + " = " + (range.unit.empty() ? text : "\"" + text + "\"");
}

/// By how much of itself the mean step changes over the whole range.
double change_over_range(const Solution& solution) {
  return std::abs(gain_over(solution.high_ms, solution.low_ms));
}

/// What to know where a value follows from a difference that no two runs could show.
std::string doubt_text(const Solution& solution) {
  const double change = change_over_range(solution);
  return solution.found && change < kSmallestGain
             ? fmt::format(
                   "\nnote: nothing to learn here: the whole range changes the step by {:.1f} %, "
                   "and two runs of one setting differ by more. Any value of it would do\n",
                   change * 100)
             : "";
}

std::string solution_text(const SolveRange& range, Duration wanted, const Solution& solution) {
  const std::string ends = fmt::format("  {} = {}: {:.3f} ms\n  {} = {}: {:.3f} ms\n",
                                       range.key,
                                       value_text(range, range.low),
                                       solution.low_ms,
                                       range.key,
                                       value_text(range, range.high),
                                       solution.high_ms);
  if (!solution.found) {
    return (solution.low_ms == solution.high_ms
                ? "the key does not change the mean step:\n"
                : fmt::format("{:.3f} ms is not between the predicted mean steps at the ends:\n",
                              to_ms(wanted))) +
           ends;
  }
  return fmt::format("{} = {}\npredicted mean step {:.3f} ms, measured {:.3f} ms\n\n{}\n{}\n{}",
                     range.key,
                     value_text(range, solution.value),
                     solution.step_ms,
                     to_ms(wanted),
                     table_and_key(range.key).first,
                     toml_line(range, solution.value),
                     doubt_text(solution));
}

Json solution_json(const SolveRange& range, Duration wanted, const Solution& solution) {
  Json json = {{"format", "stepsim-solve/1"},
               {"key", range.key},
               {"measured_ms", to_ms(wanted)},
               {"found", solution.found},
               {"low", {{"value", value_text(range, range.low)}, {"step_ms", solution.low_ms}}},
               {"high", {{"value", value_text(range, range.high)}, {"step_ms", solution.high_ms}}}};
  if (solution.found) {
    json["value"] = value_text(range, solution.value);
    json["step_ms"] = solution.step_ms;
    json["change_over_range"] = change_over_range(solution);
    json["toml"] = toml_line(range, solution.value);
  }
  json["warnings"] = note_texts(noted(solution.notes));
  return json;
}

std::string solution_csv(const SolveRange& range, Duration wanted, const Solution& solution) {
  return "key,value,step_ms,measured_ms\n" +
         (solution.found ? fmt::format("{},{},{},{}\n",
                                       csv_field(range.key),
                                       csv_field(value_text(range, solution.value)),
                                       solution.step_ms,
                                       to_ms(wanted))
                         : "");
}

Duration parse_step_time(const std::string& text) {
  const SourcePlace place{"--step-time " + text};
  try {
    const Duration time = parse_duration(text);
    if (time > Duration::zero()) {
      return time;
    }
  } catch (const InputError& error) {
    throw InputError(place, error.what());
  }
  throw InputError(place, "a step takes more than nothing");
}

Answer ask_solve(const Request& request, const SolveQuestion& options) {
  const AskedScenario asked = asked_scenario(request);
  if (options.key.empty() || options.step_time.empty()) {
    request.fail("give --key KEY=LOW..HIGH and --step-time TIME");
  }
  const SolveRange range = parse_solve_range(options.key);
  const Duration wanted = parse_step_time(options.step_time);
  Progress progress("solving");
  const Scenario scenario = asked.read();
  const std::string policy = studied_policy(scenario, "--key", {range.key}, options.policy);
  const Solution solution = solve(scenario, range, wanted, {policy, progress.callback()});
  progress.done();
  Answer answer;
  answer.status = solution.found ? kDone : kAnswerIsNo;
  answer.text = [=](const Screen&) {
    return solution_text(range, wanted, solution) + warnings_text(noted(solution.notes));
  };
  answer.json = [=] { return solution_json(range, wanted, solution); };
  answer.csv = [=] { return solution_csv(range, wanted, solution); };
  return answer;
}

}  // namespace

Question solve_question() {
  return question(
      "solve",
      "the value of a key that makes a measured step time",
      kSolveUsage,
      option_table(
          {scenario_options(),
           {option("key", &SolveQuestion::key, "KEY=LOW..HIGH: what to find, and between what"),
            option("step-time",
                   &SolveQuestion::step_time,
                   "TIME: measured mean step, as \"736.7 ms\""),
            option("policy",
                   &SolveQuestion::policy,
                   "POLICY: of the scenario; else the one whose key it is, or the first")}}),
      ask_solve);
}

}  // namespace stepsim
