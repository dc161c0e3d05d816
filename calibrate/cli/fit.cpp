#include "calibrate/cli/fit.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "calibrate/cli/commands.h"
#include "calibrate/fit/fit.h"
#include "costmodel/base/shell_word.h"
#include "costmodel/base/utc_time.h"
#include "costmodel/terminal/progress.h"

namespace stepsim {
namespace {

struct FitCommandOptions {
  std::string samples;
  std::string out;
  bool monotone = false;
  std::string report;
  std::string base;
};

constexpr const char* kFitUsage =
    "usage: stepcal fit SAMPLES --out PROFILE [--base PROFILE] [--monotone] [--report PLOT.svg]\n\n"
    "Fits the cost of every operation and collective, with errors on held-out measurements.\n"
    "--base puts collectives, imported or measured, into an existing profile.\n\n"
    "examples:\n"
    "  stepcal fit samples.jsonl --out here.json --report residuals.svg\n"
    "  stepcal fit collectives.jsonl --base scenarios/profiles/h100_8x_published.json \\\n"
    "      --out mine.json\n";

/// The first ten and the number of the others: a bad machine gives one for each op.
std::vector<std::string> first_warnings(std::vector<std::string> warnings) {
  constexpr std::size_t kMax = 10;
  if (warnings.size() > kMax) {
    const std::size_t more = warnings.size() - kMax;
    warnings.resize(kMax);
    warnings.push_back(fmt::format("and {} more like these", more));
  }
  return warnings;
}

/// What to do with a profile. One of collectives alone prices no step.
std::string next_step(const Profile& profile, const FitTask& task) {
  const std::string out = shell_word(task.out);
  if (!profile.ops.empty() || profile.recorded) {
    return "stepsim compare SCENARIO.toml --profile " + out;
  }
  return fmt::format(
      "it has no ops, only collectives; time the ops in your own PyTorch, and put the collectives "
      "beside them:\n"
      "  stepcal grid PLANS... --out shapes.json\n"
      "  python3 -m stepsim.torch.measure shapes.json --out ops.jsonl\n"
      "  stepcal fit ops.jsonl --out ops.json\n"
      "  stepcal fit {} --base ops.json --out {}",
      shell_word(task.samples),
      out);
}

FitResult fitted(const SampleSet& samples, const FitTask& task) {
  FitOptions options;
  options.name = std::filesystem::path(task.out).stem().string();
  options.samples_file = task.samples;
  options.command = task.command;
  options.date = utc_now();
  options.monotone = task.monotone;
  options.base = task.base;
  Progress progress("fitting");
  options.on_progress = progress.callback();
  return fit_profile(samples, options);
}

/// Fits, and writes what comes of it.
Answer fitted_answer(const SampleSet& samples, const FitTask& task) {
  const auto result = std::make_shared<const FitResult>(fitted(samples, task));
  if (!task.plot.empty()) {
    write_text_atomically(task.plot, residual_plot(result->profile.name, result->residuals));
  }
  write_profile(task.out, result->profile);
  Answer answer;
  answer.warnings = first_warnings(result->warnings);
  answer.text = [=](const Screen& screen) {
    return fmt::format("{}\nwrote {}\nnext: {}\n",
                       fit_report(*result, screen),
                       task.out,
                       next_step(result->profile, task));
  };
  return answer;
}

Answer ask_fit(const CommandRequest& request, const FitCommandOptions& options) {
  require_given(request, options.samples, "samples file");
  require_given(request, options.out, "profile to write (--out)");
  return fit_answer(
      {options.samples,
       options.out,
       request.command_line(),
       options.monotone,
       options.base.empty() ? std::nullopt : std::optional(read_profile(options.base)),
       options.report});
}

}  // namespace

Answer fit_answer(const FitTask& task) {
  Answer answer;
  const auto samples =
      std::make_shared<const SampleSet>(read_samples(task.samples, &answer.warnings));
  answer.then.emplace_back([=] { return fitted_answer(*samples, task); });
  return answer;
}

StepcalCommand fit_command() {
  using O = FitCommandOptions;
  return question_row(
      "fit",
      "make a profile of a samples file",
      kFitUsage,
      {option("samples", &O::samples, "SAMPLES: samples file of stepcal measure").positional(1),
       option("out", &O::out, "PROFILE or -: profile to write").written(),
       option("monotone", &O::monotone, "costs never fall when a batch grows"),
       option("report", &O::report, "FILE: also draw the errors at all points (SVG)").written(),
       option("base", &O::base, "PROFILE: to put collectives into")},
      ask_fit);
}

}  // namespace stepsim
