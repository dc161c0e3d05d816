#include "calibrate/import/nccl_profile.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "calibrate/import/import_samples.h"
#include "calibrate/import/nccl/nccl_report.h"
#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "costmodel/base/utc_time.h"

namespace stepsim {
namespace {

bool has_all_reduce(const NcclImport& import) {
  return std::ranges::find(import.sweeps, "all_reduce", &NcclSweep::op) != import.sweeps.end();
}

std::string command_of(std::vector<std::string> words, const ProfileRequest& request) {
  if (!request.base.empty()) {
    words.insert(words.end(), {"--base", request.base});
  }
  words.insert(words.end(), {"--profile", request.out});
  return import_command_line("nccl-tests", words);
}

}  // namespace

std::vector<std::string> refusals_of(std::span<const NcclImport> imports) {
  std::vector<std::string> refusals;
  for (const NcclImport& import : imports) {
    for (const std::string& reason : reasons_of(import, NcclVerdict::Refuse)) {
      refusals.push_back(fmt::format("{}: error: refused: {}", printable(import.log.file), reason));
    }
  }
  return refusals;
}

ImportedProfile nccl_profile(std::span<const NcclImport> imports,
                             const std::string& device,
                             const ProfileRequest& asked) {
  if (const std::vector<std::string> refusals = refusals_of(imports); !refusals.empty()) {
    throw InputError("{}", fmt::join(refusals, "\n"));
  }
  const auto files = mapped(imports, [](const NcclImport& import) { return import.log.file; });
  if (files.empty()) {
    throw InputError("no log given");
  }
  keep_inputs(asked, files);
  ProfileRequest request = asked;
  if (request.command.empty()) {
    request.command = command_of(files, asked);
  }
  const Json header = import_header(imports, {device, request.command, utc_now()});
  ImportedProfile imported = profile_of_samples(samples_of_imports(header, collectives_of(imports)),
                                                fmt::format("{}", fmt::join(files, ", ")),
                                                request);
  if (std::ranges::none_of(imports, has_all_reduce)) {
    // DDP needs all-reduces; a log of another collective leaves them as they were.
    imported.next += fmt::format(
        "\nnote: none of this is an all-reduce, which DDP's gradients take: {}; import a log of "
        "all_reduce_perf too",
        request.base.empty() ? "this profile has no times for them"
                             : "theirs stay those of " + printable(request.base));
  }
  for (const NcclImport& import : imports) {
    for (const std::string& reason : reasons_of(import, NcclVerdict::Warn)) {
      imported.warnings.push_back(printable(import.log.file) + ": " + reason);
    }
  }
  return imported;
}

}  // namespace stepsim
