#include <string>

#include "calibrate/cli/backend.h"
#include "calibrate/cli/commands.h"
#include "calibrate/cli/fit.h"
#include "calibrate/cli/measure.h"
#include "costmodel/base/input_error.h"

namespace stepsim {
namespace {

constexpr const char* kCalibrateUsage =
    "usage: stepcal calibrate --plan FILE… --out PROFILE [options]\n"
    "       stepcal calibrate --model NAME --max-length L --max-tokens T --out PROFILE "
    "[options]\n\n"
    "Measures GPUs (stepcal measure) and fits a profile (stepcal fit).\n\n"
    "examples:\n"
    "  stepcal calibrate --device cuda --plan plans/*.jsonl --out here.json\n"
    "  stepcal calibrate --device cuda --model gpt2-small --max-length 256 --max-tokens 1024 \\\n"
    "      --budget 600 --out here.json\n";

std::string samples_file(const MeasureOptions& options) {
  if (!options.samples.empty()) {
    return options.samples;
  }
  return (options.out == "-" ? "stepcal" : options.out) + ".samples.jsonl";
}

Answer ask_calibrate(const CommandRequest& request, const MeasureOptions& options) {
  if (parse_device(options.device).kind == DeviceKind::Cpu) {
    throw InputError(
        "ops on a CPU are timed in your own PyTorch: stepcal grid plans/*.jsonl --out shapes.json, "
        "then python3 -m stepsim.torch.measure shapes.json --out samples.jsonl, then stepcal fit "
        "samples.jsonl --out profile.json; on GPUs say --device cuda");
  }
  require_given(request, options.out, "profile to write (--out)");
  const std::string samples = samples_file(options);
  const FitTask fit = {samples, options.out, request.command_line()};
  return measure_answer(request, options, samples, [=] { return fit_answer(fit); });
}

}  // namespace

StepcalCommand calibrate_command() {
  return question_row(
      "calibrate",
      "measure GPUs and fit a profile",
      kCalibrateUsage,
      option_table(
          {measure_options(),
           {option("out", &MeasureOptions::out, "PROFILE or -: profile to write").written(),
            option("samples",
                   &MeasureOptions::samples,
                   "SAMPLES: samples file, continued when it exists (default: "
                   "PROFILE.samples.jsonl)")}}),
      ask_calibrate);
}

}  // namespace stepsim
