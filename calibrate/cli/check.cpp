#include "calibrate/measure/check.h"

#include "calibrate/cli/backend.h"
#include "calibrate/cli/cli.h"
#include "calibrate/cli/options.h"
#include "costmodel/terminal/progress.h"

namespace stepsim {
namespace {

constexpr const char* kCheckUsage =
    "usage: stepcal check --profile PROFILE\n\n"
    "Does the profile still fit this machine? Times the ops of a few batch shapes now, on the\n"
    "GPUs that the profile is of, and compares them with the profile, which stepcal measure or\n"
    "calibrate made. Exit status 0: it fits, within 5 % or twice the noise of\n"
    "the calibration; 1: calibrate again.\n\n"
    "example:\n"
    "  stepcal check --profile here.json\n";

}  // namespace

int check_command(const std::vector<std::string>& arguments) {
  OptionParser parser("check", kCheckUsage);
  parser.add({{"profile", option_text(), "PROFILE: of stepcal fit or calibrate"}});
  parser.positional("profile", 1);
  if (!parser.parse(arguments)) {
    return kDone;
  }
  const Profile profile = read_profile(parser.required("profile", "profile (--profile)"));
  (void)plan_of_profile(profile);  // Before a device is asked for.
  Progress progress("measuring");
  const CheckResult result =
      check_profile(profile, backend_factory(profile.backend), progress.callback());
  progress.done();
  print_report(check_report(profile, result, output_screen()));
  return result.fits() ? kDone : kAnswerIsNo;
}

}  // namespace stepsim
