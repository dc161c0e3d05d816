#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "calibrate/cli/commands.h"
#include "calibrate/cli/import_profile.h"
#include "calibrate/import/import_samples.h"
#include "calibrate/import/nccl/nccl_report.h"
#include "calibrate/import/nccl_profile.h"
#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "costmodel/base/shell_word.h"
#include "costmodel/base/utc_time.h"
#include "costmodel/network/collective_cost.h"

namespace stepsim {
namespace {

struct NcclTestsOptions {
  std::vector<std::string> files;
  std::string out;
  std::string profile;
  std::string base;
  std::optional<std::string> op;
  std::optional<int> ranks;
  std::optional<int> nodes;
  std::optional<int> run;
  std::string device;
  std::vector<std::string> accept;
};

constexpr const char* kImportNcclTestsUsage =
    "usage: stepcal import nccl-tests FILE… [options]\n\n"
    "Makes collective samples or a profile of logs of all_reduce_perf and its kin. It reads what\n"
    "every version since NCCL 1 and rccl-tests print, with -Z csv too, and nccl-tests' JSON (-J),\n"
    "also with launchers' labels and NCCL's own lines in between. Files that rccl-tests writes\n"
    "itself (-x FILE) are not read. It checks every row and the number of ranks, and says what is\n"
    "wrong with a log. No GPU is needed. Exit status 2: a log was refused; then only --json is\n"
    "written.\n\n"
    "examples:\n"
    "  stepcal import nccl-tests all_reduce.log\n"
    "  stepcal import nccl-tests all_reduce.log --nodes 2 --out collectives.jsonl\n"
    "  stepcal import nccl-tests all_reduce.log --profile mine.json \\\n"
    "      --base scenarios/profiles/h100_8x_published.json\n";

/// Refuses options that contradict each other.
void check_nccl_options(const CommandRequest& request, const NcclTestsOptions& options) {
  if (options.files.empty()) {
    request.fail("no log given");
  }
  if (!options.base.empty() && options.profile.empty()) {
    request.fail("--base goes with --profile");
  }
  for (const auto& [name, value] :
       {std::pair("ranks", options.ranks), std::pair("nodes", options.nodes)}) {
    if (value.value_or(1) < 1) {
      request.fail(fmt::format("--{}: at least 1", name));
    }
  }
  if (options.ranks && options.nodes && *options.nodes > *options.ranks) {
    request.fail("--nodes: no more than --ranks");
  }
}

NcclStatements statements_of(const CommandRequest& request, const NcclTestsOptions& options) {
  static const std::vector<std::string> kReasons = {"wrong_values",
                                                    "failed_footer",
                                                    "too_few_sizes",
                                                    "ends_small",
                                                    "damaged_rows",
                                                    "repeated_ranks",
                                                    "repeated_sizes"};
  NcclStatements statements;
  if (options.op) {
    try {
      statements.op = name_of(parse_collective_kind(*options.op));
    } catch (const InputError& error) {
      request.fail(std::string("--op: ") + error.what());
    }
  }
  statements.ranks = options.ranks;
  statements.nodes = options.nodes;
  for (const std::string& code : options.accept) {
    if (std::ranges::find(kReasons, code) == kReasons.end()) {
      request.fail("--accept: " + unknown_name("reason", code, kReasons));
    }
    statements.accepted.insert(code);
  }
  return statements;
}

Answer nccl_samples_answer(const std::string& out,
                           const ImportOrigin& origin,
                           const std::vector<NcclImport>& imports) {
  write_imports(out, import_header(imports, origin), collectives_of(imports));
  Answer answer;
  answer.text = [=](const Screen&) {
    return fmt::format("next: stepcal fit {} --out PROFILE.json\n", shell_word(out));
  };
  return answer;
}

Answer ask_nccl_tests(const CommandRequest& request, const NcclTestsOptions& options) {
  check_nccl_options(request, options);
  const NcclStatements statements = statements_of(request, options);
  const std::vector<NcclImport> imports = mapped(options.files, [&](const std::string& file) {
    return import_nccl_tests(file, statements, options.run);
  });
  Answer answer;
  answer.text = [=](const Screen& screen) { return nccl_report(imports, screen); };
  answer.json = [=] { return nccl_json(imports); };
  answer.errors = refusals_of(imports);
  if (!answer.errors.empty()) {
    answer.status = kBadInput;
    return answer;
  }
  if (!options.out.empty()) {
    answer.then.emplace_back([=, command = request.command_line()] {
      return nccl_samples_answer(options.out, {options.device, command, utc_now()}, imports);
    });
  }
  if (!options.profile.empty()) {
    answer.then.emplace_back([=, command = request.command_line()] {
      return profile_answer(
          options.profile,
          nccl_profile(imports, options.device, {options.profile, options.base, command}));
    });
  }
  return answer;
}

}  // namespace

StepcalCommand import_nccl_tests_command() {
  using O = NcclTestsOptions;
  return question_row(
      "import nccl-tests",
      "logs of nccl-tests and rccl-tests",
      kImportNcclTestsUsage,
      {option("files", &O::files, "FILE… or -: logs").positional(-1),
       option("json", &Outputs::json, "FILE or -: rows and verdicts as JSON").written(),
       option("out", &O::out, "SAMPLES: samples file (JSONL), continued when it exists").written(),
       option("profile", &O::profile, "PROFILE or -: profile to write").written(),
       option("base", &O::base, "PROFILE: with --profile, the one to put the collectives into"),
       option("op", &O::op, "COLLECTIVE: where the log does not name it"),
       option("ranks",
              &O::ranks,
              "NUMBER: ranks, where the log does not list them or contradicts itself"),
       option("nodes", &O::nodes, "NUMBER: nodes, where the log does not list its hosts"),
       option("run", &O::run, "NUMBER: the run to take of a file with several, from 1"),
       option("device", &O::device, "NAME: what the GPUs are, where the log does not list them"),
       option("accept",
              &O::accept,
              "wrong_values|failed_footer|too_few_sizes|ends_small|damaged_rows|repeated_ranks|"
              "repeated_sizes: a reason to refuse, accepted; may repeat")},
      ask_nccl_tests);
}

}  // namespace stepsim
