#include "calibrate/live/live.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "calibrate/cli/backend.h"
#include "calibrate/cli/cli.h"
#include "calibrate/cli/options.h"
#include "calibrate/live/diverged.h"
#include "calibrate/ranks/launched_group.h"
#include "calibrate/ranks/launcher.h"
#include "calibrate/ranks/rank_processes.h"
#include "calibrate/samples/statistics.h"
#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "costmodel/base/shell_word.h"
#include "costmodel/network/collective_pricer.h"
#include "costmodel/records/profile.h"
#include "costmodel/records/profile_cost_model.h"
#include "costmodel/terminal/progress.h"
#include "costmodel/terminal/table.h"

namespace stepsim {
namespace {

constexpr const char* kLiveUsage =
    "usage: stepcal live PLAN… --out-dir FOLDER [options]\n"
    "       stepcal live PLAN… --out FILE… [options]\n\n"
    "Trains the batches of the plans for real: one process a rank, gradients all-reduced in "
    "buckets\n"
    "as PyTorch DDP does, the plans taking turns. Writes a run record for each plan.\n\n"
    "examples:\n"
    "  stepcal live plans/*.jsonl --out-dir live --repeat 6\n"
    "  stepcal live fixed.jsonl bucketed.jsonl --out fixed_run.jsonl bucketed_run.jsonl\n";

std::vector<std::string> outputs_in_folder(const OptionParser& parser,
                                           const std::vector<std::string>& plans) {
  const std::filesystem::path folder = parser.text("out-dir");
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    throw EnvironmentFault("cannot make folder " + folder.string() + ": " + error.message());
  }
  return mapped(plans, [&](const std::string& plan) {
    return (folder / std::filesystem::path(plan).filename()).string();
  });
}

/// One file for each plan; refuses to write over a plan or twice to one file.
std::vector<std::string> choose_outputs(const OptionParser& parser,
                                        const std::vector<std::string>& plans) {
  if (parser.has("out") == parser.has("out-dir")) {
    parser.fail("give either --out-dir FOLDER or --out FILE… with one file for each plan");
  }
  std::vector<std::string> outputs =
      parser.has("out-dir") ? outputs_in_folder(parser, plans) : parser.list("out");
  if (outputs.size() != plans.size()) {
    parser.fail(fmt::format("--out: {} files for {} plans", outputs.size(), plans.size()));
  }
  std::set<std::string> seen;
  for (const std::string& output : outputs) {
    for (const std::string& plan : plans) {
      std::error_code ignored;
      if (std::filesystem::equivalent(output, plan, ignored)) {
        parser.fail(output + ": the record would overwrite a plan; choose another folder");
      }
    }
    if (!seen.insert(output).second) {
      parser.fail(output + ": two plans would be recorded in the same file");
    }
  }
  return outputs;
}

/// Milliseconds of each step, warm-up left out: the slowest rank's.
std::vector<double> slowest_ranks(const RunRecord& record) {
  std::map<std::pair<int, int>, double> steps;
  for (const StepRecord& step : record.steps) {
    if (step.step >= record.warmup_steps) {
      double& slowest = steps[{step.repeat, step.step}];
      slowest = std::max(slowest, step.step_ms);
    }
  }
  return mapped(steps, [](const auto& step) { return step.second; });
}

void print_summary(const std::vector<RunRecord>& records, const std::vector<std::string>& outputs) {
  Table table({"policy", "steps", "mean ms", "p50 ms", "p95 ms"});
  std::string files;
  for (std::size_t i = 0; i < records.size(); ++i) {
    const std::vector<double> ms = slowest_ranks(records[i]);
    const double sum = sum_of(ms);
    if (!ms.empty()) {
      table.add({printable(records[i].policy),
                 std::to_string(ms.size()),
                 fmt::format("{:.2f}", sum / static_cast<double>(ms.size())),
                 fmt::format("{:.2f}", median(ms)),
                 fmt::format("{:.2f}", quantile(ms, 0.95))});
    }
    files += " " + shell_word(outputs[i]);
  }
  std::string text = table.text(output_screen());
  for (const RunRecord& record : records) {
    text += diverged_text(record);
  }
  if (!records.empty() && records[0].backend == "emulated") {
    text += fmt::format(
        "\nEMULATED: one device played all ranks in turn; transfers are {}'s, not measured here\n",
        records[0].versions->at("emulation").at("collectives").get<std::string>());
  }
  text += fmt::format("\nwrote{}\n", files);
  text +=
      fmt::format("next: stepsim validate SCENARIO.toml --profile PROFILE.json --live{}\n", files);
  print_report(text);
}

/// Those that have steps. Returns the number of steps and ranks written.
std::size_t write_records(const std::vector<RunRecord>& records,
                          const std::vector<std::string>& outputs) {
  std::size_t steps = 0;
  for (std::size_t i = 0; i < records.size() && i < outputs.size(); ++i) {
    if (!records[i].steps.empty()) {
      write_run_record(outputs[i], records[i]);
      steps += records[i].steps.size();
    }
  }
  return steps;
}

StandInShape stand_in_shape(const OptionParser& parser) {
  StandInShape shape;
  shape.channels = parser.get<int>("channels");
  shape.traffic = parser.get<double>("traffic");
  if (shape.channels < 1 || shape.channels > 64 || !(shape.traffic >= 0 && shape.traffic <= 16)) {
    parser.fail("--channels: 1 to 64; --traffic: 0 to 16 times the size of a bucket");
  }
  return shape;
}

/// Transfers of emulated ranks: from a profile's table for as many ranks on one node.
void set_emulation(const OptionParser& parser,
                   const std::vector<Plan>& plans,
                   LiveOptions* options) {
  const int ranks = parser.get<int>("emulate-ranks");
  if (ranks != plans.front().ranks) {
    parser.fail(
        fmt::format("--emulate-ranks {}: the plans have {} ranks", ranks, plans.front().ranks));
  }
  const Profile profile = read_profile(
      parser.required("collectives", "profile with the emulated all-reduce times (--collectives)"));
  const auto pricer = std::make_shared<CollectivePricer>(collective_pricer(profile));
  options->emulated_transfer = [pricer, ranks](std::int64_t bytes) {
    return pricer->price(CollectiveKind::AllReduce, Bytes(bytes), ranks, 1).cost.seconds;
  };
  const StandInShape shape = stand_in_shape(parser);
  *options->emulation = {{"ranks", ranks},
                         {"collectives", profile.name},
                         {"channels", shape.channels},
                         {"traffic", shape.traffic}};
}

LiveOptions live_options(const OptionParser& parser) {
  LiveOptions options;
  options.plans = parser.list("plan");
  if (options.plans.empty()) {
    parser.fail("no plan given; make one: stepsim plan SCENARIO.toml --out-dir plans");
  }
  options.block = parser.get<int>("block");
  options.repeats = parser.get<int>("repeat");
  if (options.block < 1 || options.repeats < 1) {
    parser.fail("--block and --repeat must be 1 or more");
  }
  return options;
}

}  // namespace

int live_command(const std::vector<std::string>& arguments) {
  OptionParser parser("live", kLiveUsage);
  parser.add(
      {{"plan", option_value<std::vector<std::string>>(), "PLAN…: what to train"},
       {"out-dir", option_text(), "FOLDER: a record for each plan, named like the plan"},
       {"out", option_texts(), "FILE…: one for each plan", true},
       {"device", option_value<std::string>("cpu"), "cpu|cuda|cuda:NUMBER: where"},
       {"emulate-ranks",
        option_value<int>(),
        "NUMBER: one CUDA device plays all N ranks of the plans in turn, with a stand-in kernel in "
        "the place of each collective"},
       {"collectives",
        option_text(),
        "PROFILE: with --emulate-ranks, has the all-reduce times to stand in for"},
       {"channels",
        option_value<int>(16),
        "NUMBER: with --emulate-ranks, multiprocessors that a stand-in holds"},
       {"traffic",
        option_value<double>(2.5),
        "NUMBER: with --emulate-ranks, bytes a stand-in moves through memory for each byte of its "
        "bucket"},
       {"block", option_value<int>(4), "NUMBER: steps of a plan before the next takes its turn"},
       {"repeat", option_value<int>(1), "NUMBER: passes over all plans"}});
  parser.positional("plan", -1);
  if (!parser.parse(arguments)) {
    return kDone;
  }
  const BackendFactory factory = backend_factory(parser.text("device"), stand_in_shape(parser));
  LiveOptions options = live_options(parser);
  const std::vector<Plan> plans = mapped(options.plans, read_plan);
  std::unique_ptr<LaunchedGroup> launched;
  if (parser.has("emulate-ranks")) {
    if (const std::optional<Launch> launch = read_launch()) {
      parser.fail("--emulate-ranks plays all ranks in one process; start stepcal without " +
                  launch->launcher);
    }
    set_emulation(parser, plans, &options);
  } else {
    launched = join_launched_group();
    options.launched = launched.get();
  }
  if (launched && !launched->leads()) {
    std::vector<RunRecord> none;
    run_live(plans, factory, options, nullptr, none);
    return kDone;
  }
  options.outputs = choose_outputs(parser, options.plans);
  options.keep = [&options](const std::vector<RunRecord>& so_far) {
    write_records(so_far, options.outputs);
  };
  Progress progress("training");
  std::vector<RunRecord> records;
  try {
    run_live(
        plans,
        factory,
        options,
        [&progress](const LiveProgress& now) {
          progress.at(static_cast<double>(now.steps_done) / std::max(now.steps_total, 1));
        },
        records);
  } catch (const Interrupted&) {
    progress.done();
    fmt::print(stderr,
               "interrupted; {} records of steps are kept\n",
               write_records(records, options.outputs));
    return kInterrupted;
  } catch (const EnvironmentFault&) {
    progress.done();
    write_records(records, options.outputs);
    throw;
  }
  progress.done();
  write_records(records, options.outputs);
  print_summary(records, options.outputs);
  return kDone;
}

}  // namespace stepsim
