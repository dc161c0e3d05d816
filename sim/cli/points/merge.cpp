#include <algorithm>
#include <iterator>

#include "costmodel/base/input_error.h"
#include "sim/cli/cli.h"
#include "sim/cli/options.h"
#include "sim/points/point_parts.h"

namespace stepsim {

namespace {

constexpr const char* kMergeUsage =
    "usage: stepsim merge FILE... [options]\n\n"
    "Puts the shards of a sweep or a comparison together and answers as the command without\n"
    "--shard would, with the same bytes. No point is computed again. The files are those that\n"
    "--resume named; the scenario and its profile must be where the command can find them.\n\n"
    "examples:\n"
    "  stepsim sweep scenarios/bucket_valley.toml --over ddp.bucket_cap=1MiB..2GiB:x2 \\\n"
    "      --shard 1/2 --resume part-1.jsonl\n"
    "  stepsim sweep scenarios/bucket_valley.toml --over ddp.bucket_cap=1MiB..2GiB:x2 \\\n"
    "      --shard 2/2 --resume part-2.jsonl\n"
    "  stepsim merge part-1.jsonl part-2.jsonl --json sweep.json\n";

}  // namespace

Answer merge_command(const Request& request) {
  OptionParser parser("merge", kMergeUsage, request);
  parser.add({{"parts", option_texts(), "FILE: of each shard"}});
  parser.add_outputs();
  parser.add_html();
  parser.positional("parts", -1);
  if (!parser.parse()) {
    return {};
  }
  const Outputs outputs = parser.outputs();
  if (parser.list("parts").empty()) {
    parser.fail("name the files of the shards");
  }
  Request study;
  study.parts = read_point_parts(parser.list("parts"));
  const StudyId& id = study.parts.front().id;
  study.arguments = id.arguments;
  for (const auto& [option, file] :
       {std::pair("--json", &outputs.json), {"--csv", &outputs.csv}, {"--html", &outputs.html}}) {
    if (!file->empty()) {
      study.arguments.insert(study.arguments.end(), {option, *file});
    }
  }
  if (outputs.quiet) {
    study.arguments.emplace_back("--quiet");
  }
  if (id.command == "sweep") {
    return sweep_command(study);
  }
  if (id.command == "compare") {
    return compare_command(study);
  }
  throw InputError(SourcePlace{study.parts.front().path},
                   "holds points of '{}', which has no shards",
                   printable(id.command));
}

}  // namespace stepsim
