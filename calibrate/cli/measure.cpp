#include "calibrate/cli/measure.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "calibrate/cli/backend.h"
#include "calibrate/cli/commands.h"
#include "calibrate/measure/machine_load.h"
#include "calibrate/measure/measure_probe.h"
#include "calibrate/samples/sample_log.h"
#include "calibrate/samples/statistics.h"
#include "costmodel/base/input_error.h"
#include "costmodel/base/shell_word.h"
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

std::string plan_text(const MeasurePlan& plan, double estimate, bool resumed) {
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
  std::string text = fmt::format(
      "{}{} on {} rank{} ({}): {}{} sizes of collectives, up to {} passes; about {:.0f} s{}\n",
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
    text += fmt::format("not measured on one rank (it needs two): {}\n", fmt::join(lacks, ", "));
  }
  return text;
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
std::string left_out_text(const SampleLog& log) {
  std::string text;
  const DisturbedSamples& disturbed = log.disturbed();
  if (disturbed.dropped > 0) {
    text += fmt::format("{} times dropped: the stream went on before the host had put all in\n",
                        disturbed.dropped);
  }
  if (disturbed.throttled > 0) {
    text += fmt::format(
        "{} ops ran while heat held the clock down; {:.1f} s were waited for it to cool\n",
        disturbed.throttled,
        disturbed.cooled_seconds);
  }
  for (const RefusedPoint& refused : log.refused()) {
    text += fmt::format(
        "skipped {} x {}: {}\n", refused.point.samples, refused.point.length, refused.why);
  }
  return text;
}

/// What a framework pays that builds attention plans when it meets a shape. `measure` does not time
/// it, and so no profile holds it.
std::string plan_costs_text(const std::vector<double>& plan_seconds) {
  if (plan_seconds.empty()) {
    return "";
  }
  const auto [least, most] = std::ranges::minmax(plan_seconds);
  const double middle = median(plan_seconds);
  return fmt::format(
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
std::vector<std::string> busy_warnings() {
  constexpr double kSeconds = 0.4;
  constexpr double kTooBusy = 0.2;
  const std::optional<double> busy = busy_share(kSeconds);
  if (busy && *busy > kTooBusy) {
    return {fmt::format(
        "other programs keep this machine {:.0f} % busy; times will be longer and noisier than on "
        "a quiet one",
        *busy * 100)};
  }
  return {};
}

/// Says how the measurement goes while it does.
MeasureHooks hooks_of(Progress& progress, bool quiet) {
  MeasureHooks hooks;
  hooks.on_plan = [quiet](const MeasurePlan& plan, double estimate, bool resumed) {
    if (!quiet) {
      print_report(plan_text(plan, estimate, resumed));
      std::fflush(stdout);
    }
  };
  hooks.on_warning = [&progress](const std::string& warning) {
    progress.done();
    print_message("stepcal: warning: " + warning);
  };
  hooks.on_progress = [&progress](const MeasureProgress& now) {
    const double all = now.elapsed_seconds + now.remaining_seconds;
    progress.at(all > 0 ? now.elapsed_seconds / all : 0, now.remaining_seconds);
  };
  return hooks;
}

/// Measures; what `next` finds follows.
Answer measured_answer(const MeasureRequest& request,
                       const BackendFactory& factory,
                       bool quiet,
                       const std::function<Answer()>& next) {
  Answer answer;
  Progress progress("measuring");
  try {
    const int measurements = measure(request, factory, hooks_of(progress, quiet));
    answer.text = [=, out = request.out, log = kept_log(request.out)](const Screen&) {
      return fmt::format("{} measurements in {}\n", measurements, out) + left_out_text(log) +
             plan_costs_text(log.plan_seconds());
    };
    answer.then.push_back(next);
  } catch (const Interrupted&) {
    answer.status = kInterrupted;
    answer.errors.push_back(
        fmt::format("interrupted; {} measurements are kept in {}; run the same command to go on",
                    kept_log(request.out).measurements(),
                    request.out));
  }
  return answer;
}

Answer ask_measure(const CommandRequest& request, const MeasureOptions& options) {
  require_given(request, options.out, "samples file (--out)");
  return measure_answer(request, options, options.out, [out = options.out] {
    Answer answer;
    answer.text = [=](const Screen&) {
      return fmt::format("next: stepcal fit {} --out PROFILE.json\n", shell_word(out));
    };
    return answer;
  });
}

}  // namespace

Answer measure_answer(const CommandRequest& asked,
                      const MeasureOptions& options,
                      const std::string& samples,
                      const std::function<Answer()>& next) {
  const std::shared_ptr<LaunchedGroup> launched = join_launched_group();
  const MeasureRequest request = measure_request(asked, options, samples, launched.get());
  const BackendFactory factory = backend_factory(parse_device(options.device));
  Answer answer;
  if (launched && !launched->leads()) {
    (void)measure(request, factory, {});
    return answer;
  }
  answer.warnings = busy_warnings();
  answer.then.emplace_back([=, quiet = asked.outputs.quiet, kept = launched] {
    return measured_answer(request, factory, quiet, next);
  });
  return answer;
}

StepcalCommand measure_command() {
  return question_row(
      "measure",
      "measure only, into a samples file that survives a kill: GPUs, or gloo's collectives",
      kMeasureUsage,
      option_table({measure_options(),
                    {option("out",
                            &MeasureOptions::out,
                            "SAMPLES: samples file (JSONL), continued when it exists")}}),
      ask_measure);
}

}  // namespace stepsim
