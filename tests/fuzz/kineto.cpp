// Traces of PyTorch's profiler, plain or gzip, of one rank or of several; what is made of them must
// be read. Rows that simdjson reads are told as the parser of repaired traces tells them.

#include <vector>

#include "calibrate/cli/cli.h"
#include "costmodel/records/profile.h"
#include "costmodel/records/run_record.h"
#include "sim/cli/questions.h"
#include "tests/calibrate/import/told_of_trace.h"
#include "tests/fuzz/door.h"

namespace stepsim::fuzz {

void enter_kineto(std::string_view input) {
  std::vector<std::string> import = {"import", "kineto"};
  for (const InputPart& part : parts_of(input)) {
    if (!part.text.empty()) {
      import.push_back(file_with("trace" + std::to_string(import.size()), part.text));
      require(test::told_of_trace(import.back(), KinetoParser::Fast) ==
                  test::told_of_trace(import.back(), KinetoParser::Tolerant),
              "rows that the repairing parser does not read, or otherwise");
    }
  }
  const auto imported = [&](const std::string& option, const std::string& path) {
    std::vector<std::string> arguments = import;
    arguments.insert(arguments.end(), {option, path});
    return accepts([&] { (void)run_stepcal_command(arguments); });
  };
  if (!imported("--json", path_of("trace.json"))) {
    return;
  }
  const std::string folder = path_of("program");
  if (imported("--program", folder)) {
    const Answer answer = ask(question_named("replay"), std::vector<std::string>{folder});
    require(!answer.text({}).empty(), "no report");
  }
  const std::string record = path_of("run.jsonl");
  if (imported("--run-record", record)) {
    require(accepts([&] { (void)read_run_record(record); }), "a record that is refused");
  }
  const std::string profile = path_of("kineto.json");
  if (imported("--profile", profile)) {
    require(accepts([&] { (void)read_profile(profile); }), "a profile that is refused");
  }
}

}  // namespace stepsim::fuzz
