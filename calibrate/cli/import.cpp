#include <algorithm>
#include <array>
#include <cstdio>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "calibrate/cli/cli.h"
#include "calibrate/cli/import_profile.h"
#include "calibrate/cli/options.h"
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

constexpr const char* kImportUsage =
    "usage: stepcal import nccl-tests FILE… [options]\n\n"
    "Makes collective samples or a profile of logs of all_reduce_perf and its kin. It reads every\n"
    "version since NCCL 1, rccl-tests, and their JSON and CSV, also with launchers' labels and\n"
    "NCCL's own lines in between. It checks every row and the number of ranks, and says what is\n"
    "wrong with a log. No GPU is needed. Exit status 2: a log was refused; then only --json is\n"
    "written.\n\n"
    "examples:\n"
    "  stepcal import nccl-tests all_reduce.log\n"
    "  stepcal import nccl-tests all_reduce.log --nodes 2 --out collectives.jsonl\n"
    "  stepcal import nccl-tests all_reduce.log --profile mine.json \\\n"
    "      --base scenarios/profiles/h100_8x_published.json\n";

NcclStatements statements_of(const OptionParser& parser) {
  NcclStatements statements;
  if (parser.has("op")) {
    try {
      statements.op = name_of(parse_collective_kind(parser.text("op")));
    } catch (const InputError& error) {
      parser.fail(std::string("--op: ") + error.what());
    }
  }
  for (const auto& [name, value] :
       {std::pair("ranks", &statements.ranks), std::pair("nodes", &statements.nodes)}) {
    if (parser.has(name)) {
      *value = parser.get<int>(name);
      if (**value < 1) {
        parser.fail(fmt::format("--{}: at least 1", name));
      }
    }
  }
  if (statements.ranks && statements.nodes && *statements.nodes > *statements.ranks) {
    parser.fail("--nodes: no more than --ranks");
  }
  static const std::vector<std::string> kReasons = {"wrong_values",
                                                    "failed_footer",
                                                    "too_few_sizes",
                                                    "ends_small",
                                                    "damaged_rows",
                                                    "repeated_ranks",
                                                    "repeated_sizes"};
  for (const std::string& code : parser.list("accept")) {
    if (std::ranges::find(kReasons, code) == kReasons.end()) {
      parser.fail("--accept: " + unknown_name("reason", code, kReasons));
    }
    statements.accepted.insert(code);
  }
  return statements;
}

/// Tells what is refused; false when nothing is.
bool say_refused(const std::vector<NcclImport>& imports) {
  const std::vector<std::string> refusals = refusals_of(imports);
  for (const std::string& refusal : refusals) {
    print_message(refusal);
  }
  return !refusals.empty();
}

/// Writes samples file and profile; what they hold goes to standard output when `say`.
void write_taken(const OptionParser& parser, const std::vector<NcclImport>& imports, bool say) {
  if (parser.has("out")) {
    const std::string out = parser.text("out");
    const ImportOrigin origin = {parser.text("device"), parser.command_line(), utc_now()};
    write_imports(out, import_header(imports, origin), collectives_of(imports));
    if (say) {
      print_report(fmt::format("next: stepcal fit {} --out PROFILE.json\n", shell_word(out)));
    }
  }
  if (parser.has("profile")) {
    write_imported(parser.text("profile"),
                   nccl_profile(imports, parser.text("device"), profile_request(parser)));
  }
}

void add_nccl_options(OptionParser* parser) {
  parser->add(
      {{"files", option_value<std::vector<std::string>>(), "FILE… or -: logs"},
       {"json", option_text(), "FILE or -: rows and verdicts as JSON", true},
       {"out", option_text(), "SAMPLES: samples file (JSONL), continued when it exists", true},
       {"profile", option_text(), "PROFILE or -: profile to write", true},
       {"base", option_text(), "PROFILE: with --profile, the one to put the collectives into"},
       {"op", option_text(), "COLLECTIVE: where the log does not name it"},
       {"ranks",
        option_value<int>(),
        "NUMBER: ranks, where the log does not list them or contradicts itself"},
       {"nodes", option_value<int>(), "NUMBER: nodes, where the log does not list its hosts"},
       {"run", option_value<int>(), "NUMBER: the run to take of a file with several, from 1"},
       {"device", option_text(), "NAME: what the GPUs are, where the log does not list them"},
       {"accept",
        option_value<std::vector<std::string>>(),
        "wrong_values|failed_footer|too_few_sizes|ends_small|damaged_rows|repeated_ranks|"
        "repeated_sizes: a reason to refuse, accepted; may repeat"}});
  parser->positional("files", -1);
}

int import_nccl_tests_command(const std::vector<std::string>& arguments) {
  OptionParser parser("import nccl-tests", kImportUsage);
  add_nccl_options(&parser);
  if (!parser.parse(arguments)) {
    return kDone;
  }
  const std::vector<std::string> files = parser.list("files");
  if (files.empty()) {
    parser.fail("no log given");
  }
  if (parser.has("base") && !parser.has("profile")) {
    parser.fail("--base goes with --profile");
  }
  const NcclStatements statements = statements_of(parser);
  const std::vector<NcclImport> imports = mapped(files, [&](const std::string& file) {
    return import_nccl_tests(file, statements, parser.maybe<int>("run"));
  });
  const std::string json = parser.text("json");
  if (!json.empty()) {
    write_text_atomically(
        json, nccl_json(imports).dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
  }
  const bool text_to_stdout =
      json != "-" && !(parser.has("profile") && parser.text("profile") == "-");
  if (text_to_stdout) {
    print_report(nccl_report(imports, output_screen()));
    std::fflush(stdout);
  }
  if (say_refused(imports)) {
    return kBadInput;
  }
  write_taken(parser, imports, text_to_stdout);
  return kDone;
}

const std::array<Command, 4> kKinds = {{
    {"nccl-tests", "logs of nccl-tests and rccl-tests", import_nccl_tests_command},
    {"kineto", "traces of PyTorch's profiler", import_kineto_command},
    {"run-record", "the recorded steps of a training", import_run_record_command},
    {"step-times", "step times by placement and batch, in a table", import_step_times_command},
}};

const CommandSet kImportSet = {
    "stepcal import",
    "Use measurements made elsewhere. No GPU is needed.",
    "examples:\n"
    "  stepcal import nccl-tests all_reduce.log --profile mine.json\n"
    "  stepcal import kineto rank*.pt.trace.json.gz\n"
    "  stepcal import run-record run.jsonl --plan plan.jsonl --profile mine.json\n",
    kKinds};

}  // namespace

int import_command(const std::vector<std::string>& arguments) {
  return run_commands(kImportSet, arguments);
}

}  // namespace stepsim
