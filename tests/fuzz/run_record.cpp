// Run records: read, written and read again; the profile made of them must be one that is read.

#include "costmodel/records/run_record.h"

#include <string>
#include <vector>

#include "calibrate/cli/cli.h"
#include "costmodel/io/json_file.h"
#include "costmodel/records/profile.h"
#include "costmodel/records/record_files.h"
#include "sim/scenario/scenario.h"
#include "sim/study/starter/starter_scenario.h"
#include "tests/fuzz/door.h"

namespace stepsim::fuzz {

namespace {

/// The scenario that `stepsim advise` writes beside the profile, which must be one that is read.
void enter_starter(const std::string& path) {
  const std::vector<RecordFile> files = read_record_files(std::vector{path}, nullptr);
  const StarterScenario starter = starter_scenario(files, "advice", false);
  (void)file_with("lengths.json", starter.lengths);
  if (starter.plays) {
    write_run_record(path_of("recorded.jsonl"), files.front().record);
  }
  const std::string scenario = file_with("scenario.toml", starter.toml);
  require(accepts([&] { (void)read_scenario(scenario); }), "a scenario that is refused");
}

}  // namespace

void enter_run_record(std::string_view input) {
  const std::string path = file_with("run.jsonl", input);
  std::vector<std::string> warnings;
  const RunRecord record = read_run_record(path, &warnings);
  const std::string copy = path_of("copy.jsonl");
  const std::string again = path_of("again.jsonl");
  write_run_record(copy, record);
  write_run_record(again, read_run_record(copy));
  require(read_text(copy) == read_text(again), "another record after writing");
  const std::string out = path_of("profile.json");
  for (const char* fit : {"passes", "whole"}) {
    (void)accepts([&] {
      (void)run_stepcal_command({"import", "run-record", path, "--fit", fit, "--profile", out});
      require(accepts([&] { (void)read_profile(out); }), "a recorded profile that is refused");
      enter_starter(path);
    });
  }
}

}  // namespace stepsim::fuzz
