#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "costmodel/base/number_selection.h"
#include "costmodel/base/shell_word.h"
#include "sim/ask/question.h"
#include "sim/predict/scenario_profile.h"
#include "sim/report/trace/traces.h"

namespace stepsim {

namespace {

struct TraceOptions {
  std::string policy;
  std::string out;
  std::string out_dir;
  std::string ranks;
  bool parts = false;
};

constexpr const char* kTraceUsage =
    "usage: stepsim trace SCENARIO --out FILE [--policy NAME] [--ranks LIST] [--steps LIST] …\n"
    "       stepsim trace SCENARIO --out-dir FOLDER …\n\n"
    "Writes the predicted timeline of one policy (the first, without --policy).\n"
    "--out: one Chrome trace of all ranks for ui.perfetto.dev, with steps, ops, waiting, "
    "transfers,\n"
    "arrows from buckets to their collectives, and counters of tokens and memory; gzip when "
    "FILE\n"
    "ends in .gz.\n"
    "--out-dir: one file a rank as PyTorch's profiler writes it, for HTA, TensorBoard and stepcal\n"
    "import kineto. HTA leaves out the last of several steps unless told otherwise.\n"
    "Ranks and steps count from 0. --steps 20 makes 20 steps, as everywhere; --steps 5..9 or "
    "3,7..8\n"
    "shows these of the scenario's. At most 5 million slices, and 512 files.\n\n"
    "examples:\n"
    "  stepsim trace scenarios/token_skew.toml --policy variable_fixed --out trace.json.gz\n"
    "  stepsim trace scenarios/bucket_valley.toml --ranks 0,7 --steps 2..3 --out trace.json\n"
    "  stepsim trace scenarios/token_skew.toml --out-dir traces\n";

/// Takes --steps out of the request where it is a list, and returns it.
std::string take_step_list(Request& request) {
  std::optional<std::string>& steps = request.scenario.steps;
  if (!steps || steps->find_first_of(".,") == steps->npos) {
    return "";
  }
  return *std::exchange(steps, std::nullopt);
}

std::string size_text(const TraceFiles& files) {
  const auto mb = [](std::int64_t bytes) { return static_cast<double>(bytes) / 1e6; };
  return files.file_bytes == files.text_bytes
             ? fmt::format("{:.1f} MB", mb(files.text_bytes))
             : fmt::format(
                   "{:.1f} MB, {:.1f} MB packed", mb(files.text_bytes), mb(files.file_bytes));
}

std::string write_one(const Scenario& scenario,
                      const BatchingPolicy& policy,
                      const TraceChoice& choice,
                      const std::string& path) {
  const TraceFiles files =
      write_chrome_trace(scenario, policy, scenario_profile(scenario), choice, path);
  return path == "-" ? ""
                     : fmt::format(
                           "wrote {}: {}, {} ranks x {} steps, {}\nopen it at "
                           "https://ui.perfetto.dev\n",
                           printable(path),
                           printable(policy.name()),
                           files.ranks,
                           files.steps,
                           size_text(files));
}

std::string write_one_a_rank(const Scenario& scenario,
                             const BatchingPolicy& policy,
                             const TraceChoice& choice,
                             const std::string& folder) {
  const TraceFiles files =
      write_profiler_traces(scenario, policy, scenario_profile(scenario), choice, folder);
  std::string text = fmt::format("wrote {}: {}, a file for each of {} ranks, {} steps, {}\n",
                                 printable(folder),
                                 printable(policy.name()),
                                 files.ranks,
                                 files.steps,
                                 size_text(files));
  if (files.left_out > 0) {
    text += fmt::format("left out: {} pieces of work that take no time\n", files.left_out);
  }
  return text +
         fmt::format(
             "next: stepcal import kineto {}/*.json.gz, or HTA: TraceAnalysis(trace_dir=\"{}\")\n",
             shell_word(folder),
             printable(folder));
}

Answer ask_trace(const Request& given, const TraceOptions& options) {
  Request request = given;
  const std::string steps = take_step_list(request);
  const AskedScenario asked = asked_scenario(request);
  if (options.out.empty() && options.out_dir.empty()) {
    request.fail("give --out FILE or --out-dir FOLDER");
  }
  if (!request.outputs.json.empty() || !request.outputs.csv.empty()) {
    request.fail("a trace has a form of its own; use --out FILE");
  }
  const Scenario scenario = asked.read();
  const BatchingPolicy& policy = find_policy(scenario, options.policy);
  TraceChoice choice;
  choice.by_part = options.parts;
  if (!steps.empty()) {
    choice.steps = parse_selection(steps, scenario.steps, "steps");
  }
  if (!options.ranks.empty()) {
    choice.ranks = parse_selection(options.ranks, scenario.ranks, "ranks");
  }
  std::string text;
  if (!options.out.empty()) {
    text += write_one(scenario, policy, choice, options.out);
  }
  if (!options.out_dir.empty()) {
    text += write_one_a_rank(scenario, policy, choice, options.out_dir);
  }
  Answer answer;
  answer.text = [=](const Screen&) { return text; };
  return answer;
}

}  // namespace

Question trace_question() {
  return question(
      "trace",
      "a Chrome trace for Perfetto",
      kTraceUsage,
      option_table({scenario_options(),
                    {option("policy", &TraceOptions::policy, "POLICY: of the scenario"),
                     option("out", &TraceOptions::out, "FILE or -: the trace").written(),
                     option("out-dir",
                            &TraceOptions::out_dir,
                            "FOLDER: a trace of PyTorch's profiler for each rank"),
                     option("ranks", &TraceOptions::ranks, "LIST: ranks to show, as 0..3,8"),
                     option("parts",
                            &TraceOptions::parts,
                            "one slice for a part of a step in place of each op")}}),
      ask_trace);
}

}  // namespace stepsim
