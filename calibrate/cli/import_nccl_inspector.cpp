#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "calibrate/cli/commands.h"
#include "calibrate/cli/import_profile.h"
#include "calibrate/import/import_samples.h"
#include "calibrate/import/nccl/nccl_inspector_report.h"
#include "costmodel/base/input_error.h"
#include "costmodel/base/shell_word.h"
#include "costmodel/base/utc_time.h"

namespace stepsim {
namespace {

struct InspectorOptions {
  std::vector<std::string> files;
  std::string out;
  std::string profile;
  std::string base;
  std::string device;
  std::vector<std::string> accept;
};

constexpr const char* kImportInspectorUsage =
    "usage: stepcal import nccl-inspector FILE… [options]\n\n"
    "How long do a training's collectives take, and who waits? Reads what NCCL's profiler plugin\n"
    "Inspector writes while a job runs (formats v4.0 to v4.3). A recorded time holds the wait for\n"
    "the last rank: with the files of all ranks the least over them is the transfer, and the rest\n"
    "is each rank's waiting. --out and --profile take the transfers. No GPU is needed.\n\n"
    "Record by three environment variables on every rank, with the plugin that NCCL's sources\n"
    "have in plugins/profiler/inspector:\n"
    "  NCCL_PROFILER_PLUGIN=libnccl-profiler-inspector.so NCCL_INSPECTOR_ENABLE=1 \\\n"
    "  NCCL_INSPECTOR_DUMP_THREAD_INTERVAL_MICROSECONDS=100000\n\n"
    "examples:\n"
    "  stepcal import nccl-inspector nccl-inspector/*.log\n"
    "  stepcal import nccl-inspector nccl-inspector/*.log --profile mine.json \\\n"
    "      --base scenarios/profiles/h100_8x_published.json\n";

/// What the files hold, and what they were asked for.
struct InspectorFound {
  InspectorOptions options;
  InspectorLog log;
  std::vector<InspectorMatch> matches;
  InspectorSamples samples;
};

bool accepts_missing_ranks(const CommandRequest& request, const InspectorOptions& options) {
  for (const std::string& code : options.accept) {
    if (code != "missing_ranks") {
      request.fail("--accept: expected missing_ranks");
    }
  }
  return !options.accept.empty();
}

void require_samples(const InspectorFound& found) {
  if (found.samples.collectives.empty()) {
    throw InputError(SourcePlace{found.options.files.front()},
                     "no collective can be taken: {}",
                     found.samples.left_out.empty()
                         ? std::string("there is none but sends and receives")
                         : fmt::format("{}", fmt::join(found.samples.left_out, "; ")));
  }
}

Answer samples_answer(const InspectorFound& found, const Json& header) {
  require_samples(found);
  write_imports(found.options.out, header, found.samples.collectives);
  Answer answer;
  answer.text = [out = found.options.out](const Screen&) {
    return fmt::format("next: stepcal fit {} --out PROFILE.json\n", shell_word(out));
  };
  return answer;
}

Answer inspector_profile_answer(const InspectorFound& found,
                                const Json& header,
                                const std::string& command) {
  require_samples(found);
  const ProfileRequest request = {found.options.profile, found.options.base, command};
  keep_inputs(request, found.options.files);
  ImportedProfile imported =
      profile_of_samples(samples_of_imports(header, found.samples.collectives),
                         fmt::format("{}", fmt::join(found.options.files, ", ")),
                         request);
  for (const std::vector<std::string>* more : {&found.samples.warnings, &found.samples.left_out}) {
    imported.warnings.insert(imported.warnings.end(), more->begin(), more->end());
  }
  return profile_answer(found.options.profile, std::move(imported));
}

Answer ask_inspector(const CommandRequest& request, const InspectorOptions& options) {
  if (options.files.empty()) {
    request.fail("no file given");
  }
  if (!options.base.empty() && options.profile.empty()) {
    request.fail("--base goes with --profile");
  }
  const bool some_ranks = accepts_missing_ranks(request, options);
  const auto found = std::make_shared<InspectorFound>();
  found->options = options;
  found->log = read_inspector(options.files);
  found->matches = match_inspector(found->log);
  found->samples = inspector_samples(found->log, found->matches, some_ranks);
  Answer answer;
  answer.json = [found] { return inspector_json(found->log, found->matches); };
  answer.text = [found](const Screen& screen) {
    std::string text = inspector_report(found->log, found->matches, screen);
    if (found->options.out.empty() && found->options.profile.empty()) {
      return text + "next: --profile mine.json makes a profile of the transfers\n";
    }
    for (const std::string& warning : found->samples.warnings) {
      text += "warning: " + warning + "\n";
    }
    for (const std::string& one : found->samples.left_out) {
      text += "left out: " + one + "\n";
    }
    return text;
  };
  const std::string command = request.command_line();
  const Json header =
      import_header("not stated by Inspector", {options.device, command, utc_now()});
  if (!options.out.empty()) {
    answer.then.emplace_back([=] { return samples_answer(*found, header); });
  }
  if (!options.profile.empty()) {
    answer.then.emplace_back([=] { return inspector_profile_answer(*found, header, command); });
  }
  return answer;
}

}  // namespace

StepcalCommand import_nccl_inspector_command() {
  using O = InspectorOptions;
  return question_row(
      "import nccl-inspector",
      "each rank's collectives, as NCCL Inspector writes them",
      kImportInspectorUsage,
      {option("files", &O::files, "FILE… or -: Inspector's files, one a rank").positional(-1),
       option("json", &Outputs::json, "FILE or -: every collective as JSON").written(),
       option("out", &O::out, "SAMPLES: samples file (JSONL), continued when it exists").written(),
       option("profile", &O::profile, "PROFILE or -: profile to write").written(),
       option("base", &O::base, "PROFILE: with --profile, the one to put the collectives into"),
       option("device", &O::device, "NAME: what the GPUs are"),
       option(
           "accept",
           &O::accept,
           "REASON: missing_ranks takes the quickest time of each size where ranks are missing")},
      ask_inspector);
}

}  // namespace stepsim
