#include <array>
#include <filesystem>
#include <string>
#include <vector>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "costmodel/base/input_error.h"
#include "costmodel/io/csv_table.h"
#include "costmodel/io/json_file.h"
#include "costmodel/records/shipped.h"
#include "sim/cli/cli.h"
#include "sim/cli/options.h"
#include "sim/report/replay_report.h"

namespace stepsim {

namespace {

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

constexpr std::array kLaunchOptions = {
    "no-barrier", "ranks-from", "transfers-from", "transfer-scale", "cpu-scale"};
constexpr std::array kPipelineOptions = {"sends", "balanced", "steps-table"};

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

template <std::size_t N>
void refuse(const OptionParser& parser, const std::array<const char*, N>& options, const char* of) {
  for (const char* name : options) {
    if (parser.has(name)) {
      parser.fail(fmt::format("--{} is for programs of {}", name, of));
    }
  }
}

double scale(const OptionParser& parser, const char* name) {
  constexpr double kMax = 100;
  const double value = parser.has(name) ? parser.get<double>(name) : 1;
  if (!(value >= 0 && value <= kMax)) {
    parser.fail(fmt::format("--{} must be from 0 to {}", name, kMax));
  }
  return value;
}

LaunchReplayOptions launch_options(const OptionParser& parser) {
  LaunchReplayOptions options;
  options.barrier = !parser.has("no-barrier");
  options.transfer_scale = scale(parser, "transfer-scale");
  options.cpu_scale = scale(parser, "cpu-scale");
  if (parser.has("ranks-from")) {
    options.ranks_from = parser.get<int>("ranks-from");
  }
  if (parser.has("transfers-from")) {
    const std::string text = parser.text("transfers-from");
    const bool digits = !text.empty() && text.size() < 9 &&
                        text.find_first_not_of("0123456789") == std::string::npos;
    if (text != "shortest" && !digits) {
      parser.fail("--transfers-from takes a rank or 'shortest'");
    }
    options.transfers_from = digits ? std::stoi(text) : kShortest;
  }
  return options;
}

SendMode sends_of(const OptionParser& parser) {
  const std::string text = parser.has("sends") ? parser.text("sends") : "blocking";
  if (text == "blocking") {
    return SendMode::Blocking;
  }
  if (text == "buffered") {
    return SendMode::Buffered;
  }
  const std::vector<std::string> known = {"blocking", "buffered"};
  parser.fail(unknown_name("--sends", text, known));
}

PipelineReplay replay_pipeline(const CsvTable& table, SendMode sends) {
  const PipelineTrace recording = read_pipeline_trace(table);
  const std::vector<Duration> replayed = replay(recording, {.sends = sends});
  const std::vector<Duration> balanced = replay(recording, {.sends = sends, .balanced = true});
  PipelineReplay result{recording.path, recording.replicas, recording.stages, recording.rows, {}};
  for (std::size_t i = 0; i < recording.steps.size(); ++i) {
    const PipelineStep& step = recording.steps[i];
    result.steps.push_back({step.number, step.measured, replayed[i], balanced[i]});
  }
  return result;
}

}  // namespace

Answer replay_command(const Request& request) {
  OptionParser parser("replay", kReplayUsage, request);
  parser.positional("program", 1);
  parser.add(
      {{"program", option_text(), "PROGRAM: recorded program (CSV, may be gzip) or its folder"},
       {"no-barrier", option_flag(), "no rank waits for the others in a collective"},
       {"ranks-from", option_value<int>(), "RANK: the program of this rank on all ranks"},
       {"transfers-from",
        option_text(),
        "RANK|shortest: whose recorded kernel durations are the transfer times"},
       {"transfer-scale", option_value<double>(), "FACTOR: on the transfer times"},
       {"cpu-scale", option_value<double>(), "FACTOR: on the CPU's times"},
       {"sends", option_text(), "blocking|buffered: who waits for a transfer (default: blocking)"},
       {"balanced", option_flag(), "show each step with every micro-batch at its stage's mean"},
       {"steps-table", option_flag(), "show all steps, not the worst"},
       {"json", option_text(), "FILE or -: write the result as JSON", true},
       {"csv", option_text(), "FILE or -: one row a rank or step", true},
       {"quiet,q", option_flag(), "suppress terminal output"}});
  if (!parser.parse()) {
    return {};
  }
  if (!parser.has("program")) {
    parser.fail("no program given");
  }
  Answer answer;
  answer.outputs = parser.outputs();
  const CsvTable table(program_file(shipped_path(parser.text("program"))));
  if (table.find("pp_stage")) {
    refuse(parser, kLaunchOptions, "CPU launches");
    const PipelineReplay result = replay_pipeline(table, sends_of(parser));
    const StepColumns columns{parser.has("steps-table"), parser.has("balanced")};
    answer.text = [=](const Screen& screen) { return replay_text(result, columns, screen); };
    answer.json = [=] { return replay_json(result); };
    answer.csv = [=] { return replay_csv(result); };
  } else if (table.find("gap_us")) {
    refuse(parser, kPipelineOptions, "a pipeline");
    const LaunchReplay result = replay(read_launch_trace(table), {}, launch_options(parser));
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

}  // namespace stepsim
