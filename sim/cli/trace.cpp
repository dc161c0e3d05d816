#include <algorithm>
#include <string_view>

#include <fmt/format.h>

#include "costmodel/base/number_selection.h"
#include "costmodel/base/shell_word.h"
#include "sim/cli/cli.h"
#include "sim/cli/options.h"
#include "sim/predict/scenario_profile.h"
#include "sim/report/trace/traces.h"

namespace stepsim {

namespace {

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

constexpr std::string_view kStepsKey = "scenario.steps=";

/// Takes --steps out of the overrides where it is a list, and returns it.
std::string take_step_list(CommonOptions& common) {
  const auto list = std::ranges::find_if(common.set, [](const std::string& text) {
    return text.rfind(kStepsKey, 0) == 0 && text.find_first_of(".,", kStepsKey.size()) != text.npos;
  });
  if (list == common.set.end()) {
    return "";
  }
  std::string text = list->substr(kStepsKey.size());
  common.set.erase(list);
  return text;
}

std::string size_text(const TraceFiles& files) {
  const auto mb = [](std::int64_t bytes) { return static_cast<double>(bytes) / 1e6; };
  return files.file_bytes == files.text_bytes
             ? fmt::format("{:.1f} MB", mb(files.text_bytes))
             : fmt::format(
                   "{:.1f} MB, {:.1f} MB packed", mb(files.text_bytes), mb(files.file_bytes));
}

}  // namespace

Answer trace_command(const Request& request) {
  OptionParser parser("trace", kTraceUsage, request);
  parser.add_common();
  parser.add({{"policy", option_value<std::string>(""), "POLICY: of the scenario"},
              {"out", option_text(), "FILE or -: the trace", true},
              {"out-dir", option_text(), "FOLDER: a trace of PyTorch's profiler for each rank"},
              {"ranks", option_text(), "LIST: ranks to show, as 0..3,8"},
              {"parts", option_flag(), "one slice for a part of a step in place of each op"}});
  if (!parser.parse()) {
    return {};
  }
  CommonOptions common = parser.common();
  if (!parser.has("out") && !parser.has("out-dir")) {
    parser.fail("give --out FILE or --out-dir FOLDER");
  }
  if (!common.outputs.json.empty() || !common.outputs.csv.empty()) {
    parser.fail("a trace has a form of its own; use --out FILE");
  }
  const std::string steps = take_step_list(common);
  const Scenario scenario = load_scenario(common);
  const BatchingPolicy& policy = find_policy(scenario, parser.text("policy"));
  TraceChoice choice;
  choice.by_part = parser.has("parts");
  if (!steps.empty()) {
    choice.steps = parse_selection(steps, scenario.steps, "steps");
  }
  if (parser.has("ranks")) {
    choice.ranks = parse_selection(parser.text("ranks"), scenario.ranks, "ranks");
  }
  const Profile profile = scenario_profile(scenario);
  std::string text;
  if (parser.has("out")) {
    const std::string path = parser.text("out");
    const TraceFiles files = write_chrome_trace(scenario, policy, profile, choice, path);
    if (path != "-") {
      text += fmt::format(
          "wrote {}: {}, {} ranks x {} steps, {}\nopen it at "
          "https://ui.perfetto.dev\n",
          printable(path),
          printable(policy.name()),
          files.ranks,
          files.steps,
          size_text(files));
    }
  }
  if (parser.has("out-dir")) {
    const std::string folder = parser.text("out-dir");
    const TraceFiles files = write_profiler_traces(scenario, policy, profile, choice, folder);
    text += fmt::format("wrote {}: {}, a file for each of {} ranks, {} steps, {}\n",
                        printable(folder),
                        printable(policy.name()),
                        files.ranks,
                        files.steps,
                        size_text(files));
    if (files.left_out > 0) {
      text += fmt::format("left out: {} pieces of work shorter than half a microsecond\n",
                          files.left_out);
    }
    text += fmt::format(
        "next: stepcal import kineto {}/*.json.gz, or HTA: TraceAnalysis(trace_dir=\"{}\")\n",
        shell_word(folder),
        printable(folder));
  }
  Answer answer;
  answer.outputs = common.outputs;
  answer.text = [=](const Screen&) { return text; };
  return answer;
}

}  // namespace stepsim
