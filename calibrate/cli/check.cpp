#include "calibrate/measure/check.h"

#include "calibrate/cli/backend.h"
#include "calibrate/cli/commands.h"
#include "costmodel/terminal/progress.h"

namespace stepsim {
namespace {

struct CheckOptions {
  std::string profile;
};

constexpr const char* kCheckUsage =
    "usage: stepcal check --profile PROFILE\n\n"
    "Does the profile still fit this machine? Times the ops of a few batch shapes now, on the\n"
    "GPUs that the profile is of, and compares them with the profile, which stepcal measure or\n"
    "calibrate made. Exit status 0: it fits, within 5 % or twice the noise of\n"
    "the calibration; 1: calibrate again.\n\n"
    "example:\n"
    "  stepcal check --profile here.json\n";

Answer ask_check(const CommandRequest& request, const CheckOptions& options) {
  require_given(request, options.profile, "profile (--profile)");
  const Profile profile = read_profile(options.profile);
  (void)plan_of_profile(profile);  // Before a device is asked for.
  Progress progress("measuring");
  const CheckResult result =
      check_profile(profile, backend_factory(parse_device(profile.backend)), progress.callback());
  progress.done();
  Answer answer;
  answer.status = result.fits() ? kDone : kAnswerIsNo;
  answer.text = [=](const Screen& screen) { return check_report(profile, result, screen); };
  return answer;
}

}  // namespace

StepcalCommand check_command() {
  return question_row(
      "check",
      "does a profile still fit this machine?",
      kCheckUsage,
      {option("profile", &CheckOptions::profile, "PROFILE: of stepcal fit or calibrate")
           .positional(1)},
      ask_check);
}

}  // namespace stepsim
