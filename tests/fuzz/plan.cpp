// Plans: read, written and read again; the shapes to calibrate on and the lengths of their samples.

#include "calibrate/cli/cli.h"
#include "costmodel/records/plan_file.h"
#include "costmodel/terminal/commands.h"
#include "sim/batching/lengths.h"
#include "tests/fuzz/door.h"

namespace stepsim::fuzz {

void enter_plan(std::string_view input) {
  const std::string path = file_with("plan.jsonl", input);
  (void)accepts([&] {
    LengthSource source;
    source.kind = LengthSource::Kind::Plan;
    source.file = path;
    for (const std::int64_t length : generate_lengths(source, 0)) {
      require(length >= 1 && length <= kMaxSampleLength, "a length that no sample may have");
    }
  });
  const Plan plan = read_plan(path);
  const std::string copy = path_of("copy.jsonl");
  write_plan(copy, plan);
  require(read_plan(copy) == plan, "another plan after writing");
  require(run_stepcal_command({"grid", path, "--out", path_of("shapes.json")}) == kDone,
          "no shapes");
}

}  // namespace stepsim::fuzz
