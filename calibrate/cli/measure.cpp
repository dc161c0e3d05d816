#include "calibrate/measure/measure.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>

#include <fmt/core.h>
#include <fmt/format.h>

#include "calibrate/cli/backend.h"
#include "calibrate/cli/cli.h"
#include "calibrate/cli/options.h"
#include "calibrate/fit/fit.h"
#include "calibrate/measure/machine_load.h"
#include "calibrate/measure/measure_probe.h"
#include "calibrate/ranks/launched_group.h"
#include "calibrate/samples/sample_log.h"
#include "calibrate/samples/statistics.h"
#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "costmodel/base/parse_units.h"
#include "costmodel/base/shell_word.h"
#include "costmodel/base/utc_time.h"
#include "costmodel/io/json_file.h"
#include "costmodel/model/model_presets.h"
#include "costmodel/terminal/progress.h"

namespace stepsim {
namespace {

constexpr const char* kMeasureUsage =
    "usage: stepcal measure --plan FILE… --out SAMPLES [options]\n"
    "       stepcal measure --model NAME --max-length L --max-tokens T --out SAMPLES [options]\n\n"
    "On GPUs it times every operation of training steps over a grid of batch shapes, one at a\n"
    "time, and all-reduces, reduce-scatters and all-gathers by NCCL, on all ranks at once; on a\n"
    "CPU the collectives, by gloo. (Operations on a CPU are timed in your own PyTorch: python3 -m\n"
    "stepsim.torch.measure.) It appends every measurement to SAMPLES as it comes; after Ctrl-C or\n"
    "a crash the same command goes on where it stopped. Under torchrun, mpirun or srun it\n"
    "measures on their ranks, and rank 0 prints and writes.\n\n"
    "examples:\n"
    "  stepcal measure --plan plans/*.jsonl --out samples.jsonl\n"
    "  stepcal measure --device cuda --model gpt2-small --max-length 256 --max-tokens 4096 \\\n"
    "      --budget 120 --out samples.jsonl\n";

constexpr const char* kCalibrateUsage =
    "usage: stepcal calibrate --plan FILE… --out PROFILE [options]\n"
    "       stepcal calibrate --model NAME --max-length L --max-tokens T --out PROFILE "
    "[options]\n\n"
    "Measures GPUs (stepcal measure) and fits a profile (stepcal fit).\n\n"
    "examples:\n"
    "  stepcal calibrate --device cuda --plan plans/*.jsonl --out here.json\n"
    "  stepcal calibrate --device cuda --model gpt2-small --max-length 256 --max-tokens 1024 \\\n"
    "      --budget 600 --out here.json\n";

constexpr const char* kFitUsage =
    "usage: stepcal fit SAMPLES --out PROFILE [--base PROFILE] [--monotone] [--report PLOT.svg]\n\n"
    "Fits the cost of every operation and collective, with errors on held-out measurements.\n"
    "--base puts collectives, imported or measured, into an existing profile.\n\n"
    "examples:\n"
    "  stepcal fit samples.jsonl --out here.json --report residuals.svg\n"
    "  stepcal fit collectives.jsonl --base scenarios/profiles/h100_8x_published.json \\\n"
    "      --out mine.json\n";

void add_measure_options(OptionParser* parser) {
  parser->add(
      {{"plan",
        option_texts(),
        "FILE…: plans whose batches are to be priced (same model and ranks)"},
       {"model", option_text(), "MODEL: model preset, in place of plans"},
       {"max-length", option_value<std::int64_t>(), "NUMBER: with --model, longest padded length"},
       {"max-tokens",
        option_value<std::int64_t>(),
        "NUMBER: with --model, most padded tokens of a batch"},
       {"dtype", option_text(), "f32|tf32|bf16|f16: with --model, of the computation"},
       {"attention", option_text(), "dense|flash|varlen: with --model"},
       {"ranks",
        option_value<int>(),
        "NUMBER: processes that train together (default: the plans', with --model 2 on cpu and 1 "
        "on cuda)"},
       {"bucket-cap",
        option_value<std::string>("25 MiB"),
        "SIZE: with --model, gradient buckets to all-reduce"},
       {"device", option_value<std::string>("cpu"), "cpu|cuda|cuda:NUMBER: where"},
       {"budget",
        option_value<std::string>("60 s"),
        "TIME: to spend on measuring, in seconds or as \"90 s\", \"5 min\""},
       {"seed", option_value<std::uint64_t>(0), "NUMBER: of the order of measurements"}});
}

void request_from_plans(const OptionParser& parser, MeasureRequest* request) {
  for (const char* name : {"max-length", "max-tokens", "dtype", "attention"}) {
    if (parser.has(name)) {
      parser.fail(fmt::format("--{} goes with --model; plans say it themselves", name));
    }
  }
  const std::vector<Plan> plans = mapped(parser.list("plan"), read_plan);
  request->box = box_of_plans(plans);
  request->model = plans.front().model;
  request->ranks = parser.maybe<int>("ranks").value_or(plans.front().ranks);
  request->buckets = plans.front().buckets;
}

Bytes read_bucket_cap(const OptionParser& parser) {
  try {
    return parse_bytes(parser.text("bucket-cap"));
  } catch (const InputError& error) {
    parser.fail(std::string("--bucket-cap: ") + error.what());
  }
}

void request_from_model(const OptionParser& parser, MeasureRequest* request) {
  if (!parser.has("model") || !parser.has("max-length") || !parser.has("max-tokens")) {
    parser.fail("give --plan FILE…, or --model NAME with --max-length and --max-tokens");
  }
  request->model = model_preset(parser.text("model"));
  if (parser.has("dtype")) {
    request->model.dtype = parse_dtype(parser.text("dtype"));
  }
  if (parser.has("attention")) {
    request->model.attention = parse_attention(parser.text("attention"));
  }
  request->ranks = parser.has("ranks")            ? parser.get<int>("ranks")
                   : request->launched != nullptr ? request->launched->ranks()
                                                  : (request->device == "cpu" ? 2 : 1);
  request->box = box_of_limits(request->model,
                               parser.get<std::int64_t>("max-length"),
                               parser.get<std::int64_t>("max-tokens"));
  const Bytes first(std::int64_t{1} << 20U);
  request->buckets = buckets_by_cap(request->model, first, read_bucket_cap(parser));
}

/// "90" and "90 s" alike.
double parse_budget(const OptionParser& parser) {
  const std::string text = parser.text("budget");
  const bool is_number = text.find_first_not_of("0123456789.") == std::string::npos;
  double seconds = 0;
  try {
    seconds = to_seconds(parse_duration(is_number ? text + " s" : text));
  } catch (const InputError& error) {
    parser.fail(fmt::format("--budget: {}", error.what()));
  }
  if (!(seconds > 0)) {
    parser.fail("--budget: a time above 0, like \"90 s\" or \"5 min\"");
  }
  return seconds;
}

/// `launched`: null without a launcher.
MeasureRequest make_request(const OptionParser& parser,
                            const std::string& samples,
                            LaunchedGroup* launched) {
  MeasureRequest request;
  request.launched = launched;
  request.device = device_kind(parser.text("device"));
  if (parser.has("plan")) {
    if (parser.has("model")) {
      parser.fail("give either --plan or --model");
    }
    request_from_plans(parser, &request);
  } else {
    request_from_model(parser, &request);
  }
  if (launched == nullptr && (request.ranks < 1 || request.ranks > 64)) {
    parser.fail("--ranks: 1 to 64 processes on one machine");
  }
  request.budget_seconds = parse_budget(parser);
  request.seed = parser.get<std::uint64_t>("seed");
  request.out = samples;
  request.command = parser.command_line();
  request.date = utc_now();
  return request;
}

void print_plan(const MeasurePlan& plan, double estimate, bool resumed) {
  const std::string shapes =
      plan.points.empty()
          ? ""
          : fmt::format("{} batch shapes (length {}..{}, {}..{} samples, up to {} tokens), ",
                        plan.points.size(),
                        plan.box.min_length,
                        plan.box.max_length,
                        plan.box.min_samples,
                        plan.box.max_samples,
                        plan.box.max_tokens);
  fmt::print(
      "{}{} on {} rank{} ({}): {}{} sizes of collectives,\nup to {} passes; about {:.0f} s{}\n",
      resumed ? "going on with " : "measuring ",
      plan.model.name,
      plan.ranks,
      plan.ranks == 1 ? "" : "s",
      plan.device,
      shapes,
      plan.collective_bytes.size(),
      plan.passes,
      estimate,
      !resumed && estimate > 1.2 * plan.budget_seconds
          ? fmt::format(" (more than the budget of {:.0f} s: it is the least that can be fitted)",
                        plan.budget_seconds)
          : "");
  const std::vector<std::string> lacks = not_measured(plan.ranks);
  if (!lacks.empty()) {
    fmt::print("not measured on one rank (it needs two): {}\n", fmt::join(lacks, ", "));
  }
  std::fflush(stdout);
}

/// What a samples file holds; nothing when it was interrupted before the first line.
SampleLog kept_log(const std::string& path) {
  try {
    return read_sample_file(path, nullptr).log;
  } catch (const InputError&) {
    return {};
  }
}

/// What is not in the samples, and why.
void print_left_out(const SampleLog& log) {
  const DisturbedSamples& disturbed = log.disturbed();
  if (disturbed.dropped > 0) {
    fmt::print("{} times dropped: the stream went on before the host had put all in\n",
               disturbed.dropped);
  }
  if (disturbed.throttled > 0) {
    fmt::print("{} ops ran while heat held the clock down; {:.1f} s were waited for it to cool\n",
               disturbed.throttled,
               disturbed.cooled_seconds);
  }
  for (const RefusedPoint& refused : log.refused()) {
    fmt::print("skipped {} x {}: {}\n", refused.point.samples, refused.point.length, refused.why);
  }
}

/// What a framework pays that builds attention plans when it meets a shape. `measure` does not time
/// it, and so no profile holds it.
void print_plan_costs(const std::vector<double>& plan_seconds) {
  if (plan_seconds.empty()) {
    return;
  }
  const auto [least, most] = std::ranges::minmax(plan_seconds);
  const double middle = median(plan_seconds);
  fmt::print(
      "attention plans of {} shapes were built before they were timed: {:.2f} s of a core each "
      "({:.2f} to {:.2f}), which is not in the profile; PyTorch on cuDNN's attention pays that for "
      "each new shape, and a scenario says so by\n"
      "  [[new_shapes.mechanisms]]\n"
      "  kind = \"attention_plan\"\n"
      "  forward = \"{:.0f} ms\"  # the backward's plan included\n",
      plan_seconds.size(),
      middle,
      least,
      most,
      middle * 1e3);
}

/// Others' work makes every time longer and less repeatable; better said before than after.
void warn_when_busy() {
  constexpr double kSeconds = 0.4;
  constexpr double kTooBusy = 0.2;
  const std::optional<double> busy = busy_share(kSeconds);
  if (busy && *busy > kTooBusy) {
    print_message(
        fmt::format("stepcal: warning: other programs keep this machine {:.0f} % busy; times will "
                    "be longer and noisier than on a quiet one",
                    *busy * 100));
  }
}

/// False when interrupted, which is said.
bool run_measure(const MeasureRequest& request, const std::string& device) {
  warn_when_busy();
  Progress progress("measuring");
  MeasureHooks hooks;
  hooks.on_plan = print_plan;
  hooks.on_warning = [&progress](const std::string& warning) {
    progress.done();
    print_message(fmt::format("stepcal: warning: {}", warning));
  };
  hooks.on_progress = [&progress](const MeasureProgress& now) {
    const double all = now.elapsed_seconds + now.remaining_seconds;
    progress.at(all > 0 ? now.elapsed_seconds / all : 0, now.remaining_seconds);
  };
  try {
    const int measurements = measure(request, backend_factory(device), hooks);
    progress.done();
    fmt::print("{} measurements in {}\n", measurements, request.out);
    const SampleLog log = kept_log(request.out);
    print_left_out(log);
    print_plan_costs(log.plan_seconds());
    return true;
  } catch (const Interrupted&) {
    progress.done();
    std::fflush(stdout);
    fmt::print(stderr,
               "interrupted; {} measurements are kept in {}; run the same command to go on\n",
               kept_log(request.out).measurements(),
               request.out);
    return false;
  }
}

/// The first ten and the number of the others: a bad machine gives one for each op.
void print_fit_warnings(const std::vector<std::string>& warnings) {
  constexpr std::size_t kMax = 10;
  for (std::size_t i = 0; i < std::min(warnings.size(), kMax); ++i) {
    print_message(fmt::format("stepcal: warning: {}", warnings[i]));
  }
  if (warnings.size() > kMax) {
    print_message(fmt::format("stepcal: warning: and {} more like these", warnings.size() - kMax));
  }
}

/// What to do with a profile. One of collectives alone prices no step.
std::string next_step(const Profile& profile, const std::string& samples, const std::string& out) {
  if (!profile.ops.empty()) {
    return fmt::format("stepsim compare SCENARIO.toml --profile {}", shell_word(out));
  }
  return fmt::format(
      "it has no ops, only collectives; time the ops in your own PyTorch, and put the collectives "
      "beside them:\n"
      "  stepcal grid PLANS... --out shapes.json\n"
      "  python3 -m stepsim.torch.measure shapes.json --out ops.jsonl\n"
      "  stepcal fit ops.jsonl --out ops.json\n"
      "  stepcal fit {} --base ops.json --out {}",
      shell_word(samples),
      shell_word(out));
}

void run_fit(const std::string& samples_path,
             const std::string& out,
             const std::string& command,
             bool monotone = false,
             std::optional<Profile> base = std::nullopt,
             const std::string& plot = "") {
  std::vector<std::string> warnings;
  const SampleSet samples = read_samples(samples_path, &warnings);
  for (const std::string& warning : warnings) {
    print_message(fmt::format("stepcal: warning: {}", warning));
  }
  FitOptions options;
  options.name = std::filesystem::path(out).stem().string();
  options.samples_file = samples_path;
  options.command = command;
  options.date = utc_now();
  options.monotone = monotone;
  options.base = std::move(base);
  Progress progress("fitting");
  options.on_progress = progress.callback();
  const FitResult result = fit_profile(samples, options);
  progress.done();
  print_fit_warnings(result.warnings);
  if (!plot.empty()) {
    write_text_atomically(plot, residual_plot(options.name, result.residuals));
  }
  write_profile(out, result.profile);
  if (out != "-") {
    print_report(fmt::format("{}\nwrote {}\nnext: {}\n",
                             fit_report(result, output_screen()),
                             out,
                             next_step(result.profile, samples_path, out)));
  }
}

}  // namespace

int measure_command(const std::vector<std::string>& arguments) {
  OptionParser parser("measure", kMeasureUsage);
  add_measure_options(&parser);
  parser.add({{"out", option_text(), "SAMPLES: samples file (JSONL), continued when it exists"}});
  if (!parser.parse(arguments)) {
    return kDone;
  }
  const std::string out = parser.required("out", "samples file (--out)");
  const std::string device = parser.text("device");
  const std::unique_ptr<LaunchedGroup> launched = join_launched_group();
  const MeasureRequest request = make_request(parser, out, launched.get());
  if (launched && !launched->leads()) {
    return measure(request, backend_factory(device), {});
  }
  if (!run_measure(request, device)) {
    return kInterrupted;
  }
  print_report(fmt::format("next: stepcal fit {} --out PROFILE.json\n", shell_word(out)));
  return kDone;
}

int fit_command(const std::vector<std::string>& arguments) {
  OptionParser parser("fit", kFitUsage);
  parser.add({{"samples", option_text(), "SAMPLES: samples file of stepcal measure"},
              {"out", option_text(), "PROFILE or -: profile to write", true},
              {"monotone", option_flag(), "costs never fall when a batch grows"},
              {"report", option_text(), "FILE: also draw the errors at all points (SVG)", true},
              {"base", option_text(), "PROFILE: to put collectives into"}});
  parser.positional("samples", 1);
  if (!parser.parse(arguments)) {
    return kDone;
  }
  const std::string samples = parser.required("samples", "samples file");
  const std::string out = parser.required("out", "profile to write (--out)");
  run_fit(samples,
          out,
          parser.command_line(),
          parser.has("monotone"),
          parser.has("base") ? std::optional(read_profile(parser.text("base"))) : std::nullopt,
          parser.text("report"));
  return kDone;
}

int calibrate_command(const std::vector<std::string>& arguments) {
  OptionParser parser("calibrate", kCalibrateUsage);
  add_measure_options(&parser);
  parser.add(
      {{"out", option_text(), "PROFILE: profile to write", true},
       {"samples",
        option_text(),
        "SAMPLES: samples file, continued when it exists (default: PROFILE.samples.jsonl)"}});
  if (!parser.parse(arguments)) {
    return kDone;
  }
  if (device_kind(parser.text("device")) == "cpu") {
    throw InputError(
        "ops on a CPU are timed in your own PyTorch: stepcal grid plans/*.jsonl --out shapes.json, "
        "then python3 -m stepsim.torch.measure shapes.json --out samples.jsonl, then stepcal fit "
        "samples.jsonl --out profile.json; on GPUs say --device cuda");
  }
  const std::string out = parser.required("out", "profile to write (--out)");
  const std::string samples = parser.has("samples") ? parser.text("samples")
                              : out == "-"          ? "stepcal.samples.jsonl"
                                                    : out + ".samples.jsonl";
  const std::string device = parser.text("device");
  const std::unique_ptr<LaunchedGroup> launched = join_launched_group();
  const MeasureRequest request = make_request(parser, samples, launched.get());
  if (launched && !launched->leads()) {
    return measure(request, backend_factory(device), {});
  }
  if (!run_measure(request, device)) {
    return kInterrupted;
  }
  std::fflush(stdout);
  run_fit(samples, out, parser.command_line());
  return kDone;
}

}  // namespace stepsim
