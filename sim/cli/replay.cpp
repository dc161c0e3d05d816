#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "costmodel/base/input_error.h"
#include "costmodel/io/csv_table.h"
#include "costmodel/io/json_file.h"
#include "costmodel/records/shipped.h"
#include "sim/ask/question.h"
#include "sim/report/replay_report.h"

namespace stepsim {

namespace {

struct ReplayQuestion {
  std::string program;
  bool no_barrier = false;
  std::optional<int> ranks_from;
  std::string transfers_from;
  std::optional<double> transfer_scale;
  std::optional<double> cpu_scale;
  std::string sends;
  bool balanced = false;
  bool no_host_gaps = false;
  bool steps_table = false;
};

constexpr const char* kReplayUsage =
    "usage: stepsim replay PROGRAM [options]\n\n"
    "Plays a recorded program under the simulator's rules and compares its step with the measured\n"
    "one. PROGRAM is a CSV file, may be gzip, or its folder (program.csv, ops.csv, ops.csv.gz), "
    "of\n"
    "one of two kinds, told apart by their columns:\n"
    "  CPU launches of every rank, with ranks.csv and collective_defs.csv beside it: one step;\n"
    "  operations of a pipeline-parallel job: any number of steps.\n"
    "scenarios/README.md describes both. The options from --no-barrier to --cpu-scale are for the\n"
    "first kind, those from --sends to --steps-table for the second.\n\n"
    "examples:\n"
    "  stepsim replay scenarios/replay\n"
    "  stepsim replay scenarios/replay --no-barrier\n"
    "  stepsim replay job/ops.csv.gz --balanced --json -\n";

/// The program's file: of a folder the first that is there.
std::string program_file(const std::string& path) {
  if (!std::filesystem::is_directory(path)) {
    return path;
  }
  for (const char* name : {"program.csv", "ops.csv", "ops.csv.gz"}) {
    const std::filesystem::path file = std::filesystem::path(path) / name;
    if (std::filesystem::exists(file)) {
      return file.string();
    }
  }
  throw InputError(SourcePlace{path}, "holds no program.csv, ops.csv or ops.csv.gz");
}

/// Raises InputError where an option was given that is for the other kind of programs.
void refuse(const Request& request, std::initializer_list<const char*> options, const char* of) {
  for (const char* name : options) {
    if (std::ranges::find(request.given, name, &GivenOption::name) != request.given.end()) {
      request.fail(fmt::format("--{} is for programs of {}", name, of));
    }
  }
}

LaunchReplayOptions launch_options(const Request& request, const ReplayQuestion& asked) {
  LaunchReplayOptions options;
  options.barrier = !asked.no_barrier;
  options.transfer_scale = asked.transfer_scale.value_or(1);
  options.cpu_scale = asked.cpu_scale.value_or(1);
  options.ranks_from = asked.ranks_from;
  const std::string& text = asked.transfers_from;
  if (!text.empty()) {
    const bool digits =
        text.size() < 9 && text.find_first_not_of("0123456789") == std::string::npos;
    if (text != "shortest" && !digits) {
      request.fail("--transfers-from takes a rank or 'shortest'");
    }
    options.transfers_from = digits ? std::stoi(text) : kShortest;
  }
  return options;
}

SendMode sends_of(const Request& request, const std::string& text) {
  const std::vector<std::string> known = {"blocking", "buffered"};
  if (!text.empty() && std::ranges::find(known, text) == known.end()) {
    request.fail(unknown_name("--sends", text, known));
  }
  return text == "buffered" ? SendMode::Buffered : SendMode::Blocking;
}

PipelineReplay replay_pipeline(const CsvTable& table, PipelineReplayOptions options) {
  const PipelineTrace recording = read_pipeline_trace(table);
  options.balanced = false;
  const std::vector<Duration> replayed = replay(recording, options);
  options.balanced = true;
  const std::vector<Duration> balanced = replay(recording, options);
  PipelineReplay result{
      recording.path, recording.replicas, recording.stages, recording.rows, {}, recording.cut};
  for (std::size_t i = 0; i < recording.steps.size(); ++i) {
    const PipelineStep& step = recording.steps[i];
    result.steps.push_back({step.number, step.measured, replayed[i], balanced[i]});
  }
  return result;
}

Answer ask_replay(const Request& request, const ReplayQuestion& asked) {
  if (asked.program.empty()) {
    request.fail("no program given");
  }
  Answer answer;
  const CsvTable table(program_file(shipped_path(asked.program)));
  if (table.find("pp_stage")) {
    refuse(request,
           {"no-barrier", "ranks-from", "transfers-from", "transfer-scale", "cpu-scale"},
           "CPU launches");
    const PipelineReplay result = replay_pipeline(
        table, {.sends = sends_of(request, asked.sends), .host_gaps = !asked.no_host_gaps});
    const StepColumns columns{asked.steps_table, asked.balanced};
    answer.text = [=](const Screen& screen) { return replay_text(result, columns, screen); };
    answer.json = [=] { return replay_json(result); };
    answer.csv = [=] { return replay_csv(result); };
  } else if (table.find("gap_us")) {
    refuse(request, {"sends", "balanced", "no-host-gaps", "steps-table"}, "a pipeline");
    const LaunchReplay result =
        replay(read_launch_trace(table), {}, launch_options(request, asked));
    answer.text = [=](const Screen& screen) { return replay_text(result, screen); };
    answer.json = [=] { return replay_json(result); };
    answer.csv = [=] { return replay_csv(result); };
  } else {
    throw InputError({table.path(), 1, 0, ""},
                     "neither a program of CPU launches (column gap_us) nor of a pipeline (column "
                     "pp_stage)");
  }
  return answer;
}

}  // namespace

Question replay_question() {
  using Q = ReplayQuestion;
  constexpr double kMostScale = 100;
  return question(
      "replay",
      "a recorded program under the simulator's rules",
      kReplayUsage,
      std::vector<OptionRow>{
          option(
              "program", &Q::program, "PROGRAM: recorded program (CSV, may be gzip) or its folder")
              .positional(1),
          option("no-barrier", &Q::no_barrier, "no rank waits for the others in a collective"),
          option("ranks-from", &Q::ranks_from, "RANK: the program of this rank on all ranks"),
          option("transfers-from",
                 &Q::transfers_from,
                 "RANK|shortest: whose recorded kernel durations are the transfer times"),
          option("transfer-scale", &Q::transfer_scale, "FACTOR: on the transfer times")
              .from(0)
              .up_to(kMostScale),
          option("cpu-scale", &Q::cpu_scale, "FACTOR: on the CPU's times")
              .from(0)
              .up_to(kMostScale),
          option("sends",
                 &Q::sends,
                 "blocking|buffered: who waits for a transfer (default: blocking)"),
          option("balanced",
                 &Q::balanced,
                 "show each step with every micro-batch at its stage's mean"),
          option("no-host-gaps",
                 &Q::no_host_gaps,
                 "workers go on at once when a row is over: no gaps as they were recorded"),
          option("steps-table", &Q::steps_table, "show all steps, not the worst"),
          option("json", &Outputs::json, "FILE or -: write the result as JSON").written(),
          option("csv", &Outputs::csv, "FILE or -: one row a rank or step").written(),
          option("quiet,q", &Outputs::quiet, "suppress terminal output")},
      ask_replay);
}

}  // namespace stepsim
