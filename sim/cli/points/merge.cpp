#include <utility>

#include "costmodel/base/input_error.h"
#include "sim/ask/question.h"
#include "sim/cli/questions.h"
#include "sim/points/point_parts.h"

namespace stepsim {

namespace {

struct MergeOptions {
  std::vector<std::string> parts;
};

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

Answer ask_merge(const Request& request, const MergeOptions& options) {
  if (options.parts.empty()) {
    request.fail("name the files of the shards");
  }
  Request study;
  study.parts = read_point_parts(options.parts);
  const StudyId id = study.parts.front().id;
  const Question& asked = question_named(id.command);
  if (asked.points != SharedPoints::ProcessesAndShards) {
    throw InputError(SourcePlace{study.parts.front().path},
                     "holds points of '{}', which has no shards",
                     printable(id.command));
  }
  std::vector<std::string> words = id.arguments;
  const Outputs& outputs = request.outputs;
  for (const auto& [option, file] :
       {std::pair("--json", &outputs.json), {"--csv", &outputs.csv}, {"--html", &outputs.html}}) {
    if (!file->empty()) {
      words.insert(words.end(), {option, *file});
    }
  }
  if (outputs.quiet) {
    words.emplace_back("--quiet");
  }
  return ask(asked, words, std::move(study));
}

}  // namespace

Question merge_question() {
  return question("merge",
                  "the answer of a study whose shards were computed apart",
                  kMergeUsage,
                  option_table({{option("parts", &MergeOptions::parts, "FILE: of each shard")
                                     .positional(-1)
                                     .up_to_next_option()},
                                output_options(),
                                page_options()}),
                  ask_merge);
}

}  // namespace stepsim
