#include "costmodel/records/record_files.h"

#include <algorithm>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "costmodel/base/input_error.h"
#include "costmodel/model/model_presets.h"
#include "tests/approx.h"
#include "tests/costmodel/helpers.h"

using namespace stepsim;
using stepsim::test::Approx;

namespace {

StepRecord step_row(int step, int rank) {
  StepRecord record;
  record.step = step;
  record.rank = rank;
  record.samples = 1;
  record.step_ms = 10 * step + rank;
  return record;
}

std::string record_at(const std::string& folder,
                      const std::string& name,
                      std::vector<StepRecord> steps,
                      const std::string& policy = "fixed",
                      RunRecord record = {}) {
  record.policy = policy;
  record.world_size = 2;
  record.steps = std::move(steps);
  write_run_record(folder + "/" + name, record);
  return folder + "/" + name;
}

std::string join_error(const std::vector<std::string>& paths) {
  return test::error_of([&] { (void)read_record_files(paths, nullptr); });
}

}  // namespace

TEST_CASE("files of single ranks are one record of the steps that all finished") {
  const std::string folder = test::fresh_folder();
  const std::vector<std::string> paths = {
      record_at(folder, "run.rank1.jsonl", {step_row(0, 1), step_row(1, 1), step_row(2, 1)}),
      record_at(folder, "run.rank0.jsonl", {step_row(0, 0), step_row(1, 0)}),
      record_at(folder, "other.jsonl", {step_row(0, 0), step_row(0, 1)})};
  std::vector<std::string> warnings;
  const std::vector<RecordFile> files = read_record_files(paths, &warnings);
  REQUIRE(files.size() == 2);
  CHECK(files[0].file == paths[0]);
  REQUIRE(files[0].record.steps.size() == 4);
  CHECK(files[0].record.steps[0].rank == 0);
  CHECK(files[0].record.steps[3].step_ms == 11);
  CHECK(files[1].record.steps.size() == 2);
  REQUIRE(warnings.size() == 1);
  CHECK(warnings[0] == paths[0] + ": left out 1 rows of steps that not all ranks finished");
}

TEST_CASE("files of ranks are passed over beside the record that was made of them") {
  const std::string folder = test::fresh_folder();
  const std::vector<std::string> paths = {
      record_at(folder, "run.jsonl", {step_row(0, 0), step_row(0, 1)}),
      record_at(folder, "run.rank0.jsonl", {step_row(0, 0)}),
      record_at(folder, "run.rank1.jsonl", {step_row(0, 1)})};
  const std::vector<RecordFile> files = read_record_files(paths, nullptr);
  REQUIRE(files.size() == 1);
  CHECK(files[0].file == paths[0]);
  CHECK(files[0].record.steps.size() == 2);
}

TEST_CASE("the file of a run's only rank is passed over beside its record, too") {
  const std::string folder = test::fresh_folder();
  RunRecord record;
  record.policy = "fixed";
  record.world_size = 1;
  record.steps = {step_row(0, 0)};
  const std::vector<std::string> paths = {folder + "/run.jsonl", folder + "/run.rank0.jsonl"};
  for (const std::string& path : paths) {
    write_run_record(path, record);
  }
  CHECK(read_record_files(paths, nullptr).size() == 1);
  CHECK(read_record_files(std::vector{paths[1]}, nullptr).size() == 1);
}

TEST_CASE("files that do not make a whole run are refused by name") {
  const std::string folder = test::fresh_folder();
  const std::string rank0 = record_at(folder, "run.rank0.jsonl", {step_row(0, 0)});
  CHECK(join_error({rank0}) == rank0 +
                                   ": error: holds rank 0 of 2 ranks; give the files of all "
                                   "ranks with the names that the recorder gave them "
                                   "(NAME.rank0.jsonl, …), or NAME.jsonl, into which its close() "
                                   "merges them");
  // Another run's file does not fill the gap.
  const std::string stray = record_at(folder, "else.rank1.jsonl", {step_row(0, 1)});
  CHECK(join_error({rank0, stray}).find("of 2 ranks; give the files of all") != std::string::npos);
  const std::string twice = record_at(folder, "run.rank1.jsonl", {step_row(0, 0)});
  CHECK(join_error({rank0, twice}) == twice + ": error: holds rank 0, as " + rank0 + " does");
  const std::string policy = record_at(folder, "run.rank1.jsonl", {step_row(0, 1)}, "bucketed");
  CHECK(join_error({rank0, policy}).find("is of another run than " + rank0) != std::string::npos);
  const std::string late = record_at(folder, "run.rank1.jsonl", {step_row(5, 1)});
  CHECK(join_error({rank0, late}) == rank0 + ": error: no step was finished by all ranks");
  CHECK(join_error({record_at(folder, "empty.jsonl", {})}).find("holds no steps") !=
        std::string::npos);
}

TEST_CASE("files of ranks that are of other models or other days are of no run") {
  const std::string folder = test::fresh_folder();
  RunRecord header;
  header.started_at = "2026-11-25T10:00:00Z";
  header.host = "one";
  header.cores = 4;
  (*header.training)["model"] = {{"name", "Own"}};
  const std::string rank0 = record_at(folder, "run.rank0.jsonl", {step_row(0, 0)}, "fixed", header);
  const auto with = [&](const RunRecord& other) {
    return record_at(folder, "run.rank1.jsonl", {step_row(0, 1)}, "fixed", other);
  };
  RunRecord other = header;
  other.started_at = "2026-11-25T10:30:00Z";
  other.host = "two";
  const std::vector<std::string> paths = {rank0, with(other)};
  const std::vector<RecordFile> files = read_record_files(paths, nullptr);
  REQUIRE(files.size() == 1);
  CHECK(files[0].record.cores == 0);  // Those of one of two hosts.
  other.started_at = "2026-11-22T10:00:00Z";
  CHECK(join_error({rank0, with(other)}) ==
        folder + "/run.rank1.jsonl: error: is of another run than " + rank0 +
            ": started at 2026-11-22T10:00:00Z, that at 2026-11-25T10:00:00Z");
  other = header;
  (*other.training)["model"] = {{"name", "Other"}};
  CHECK(join_error({rank0, with(other)}) ==
        folder + "/run.rank1.jsonl: error: is of another model than " + rank0);
}

TEST_CASE("a record that lacks ranks is refused whatever its name") {
  const std::string folder = test::fresh_folder();
  const std::string path = record_at(folder, "mine.jsonl", {step_row(0, 0)});
  CHECK(join_error({path}).starts_with(path + ": error: holds rank 0 of 2 ranks"));
}

TEST_CASE("clocks of hosts are laid over each other where the all-reduces of a step end") {
  const std::string folder = test::fresh_folder();
  const auto rows = [](double offset, double drift, bool buckets) {
    std::vector<StepRecord> steps;
    for (int step = 0; step < 20; ++step) {
      for (int rank = 0; rank < 2; ++rank) {
        StepRecord row;
        row.step = step;
        row.rank = rank;
        row.samples = 1;
        row.forward_ms = 10 + 5 * rank;  // Rank 1 begins 5 ms earlier.
        row.backward_ms = 20;
        row.wait_ms = 3;
        row.step_ms = 40 + 5 * rank;
        row.start_ms = 1000 + 50 * step - 5 * rank + rank * (offset + drift * step);
        if (buckets) {
          row.buckets = {{100, 20, 25.0 + 5 * rank}, {100, row.forward_ms + 20, 33.0 + 5 * rank}};
        }
        steps.push_back(row);
      }
    }
    return steps;
  };
  for (const bool buckets : {false, true}) {
    CAPTURE(buckets);
    const std::vector<std::string> paths = {
        record_at(folder, "same.jsonl", rows(0, 0, buckets)),
        record_at(folder, "other.jsonl", rows(-5000, 0.25, buckets))};
    std::vector<std::string> warnings;
    const std::vector<RecordFile> files = read_record_files(paths, &warnings);
    REQUIRE(warnings.size() == 1);
    CHECK(warnings[0].starts_with(paths[1] +
                                  ": its ranks' clocks are up to 5 s apart (several hosts)"));
    for (std::size_t i = 0; i < files[0].record.steps.size(); ++i) {
      CHECK(files[1].record.steps[i].start_ms == Approx(files[0].record.steps[i].start_ms));
    }
  }
}

TEST_CASE("ranks of one host that do not meet in every step have one clock") {
  const std::string folder = test::fresh_folder();
  // Rank 1 takes 57 ms a step and rank 0 30; they wait for each other after each 8th.
  const auto rows = [](int period) {
    std::vector<StepRecord> steps;
    double starts[] = {0, 0};
    for (int step = 1; step <= 24; ++step) {
      const double ends[] = {starts[0] + 30, starts[1] + 57};
      const bool meet = period > 0 && step % period == 0;
      for (int rank = 0; rank < 2; ++rank) {
        StepRecord row;
        row.step = step;
        row.rank = rank;
        row.samples = 1;
        row.start_ms = starts[rank];
        row.forward_ms = 10;
        row.backward_ms = ends[rank] - starts[rank] - 10;
        row.wait_ms = meet ? std::max(ends[0], ends[1]) - ends[rank] : 0;
        row.step_ms = 10 + row.backward_ms + row.wait_ms;
        starts[rank] += row.step_ms;
        steps.push_back(row);
      }
    }
    return steps;
  };
  for (const int period : {8, 24, 0}) {
    CAPTURE(period);
    std::vector<std::string> warnings;
    const std::vector<std::string> paths = {record_at(folder, "local.jsonl", rows(period))};
    const std::vector<RecordFile> files = read_record_files(paths, &warnings);
    CHECK(warnings.empty());
    CHECK(files[0].record.steps.back().start_ms == rows(period).back().start_ms);
  }
}

TEST_CASE("recorded buckets tell another model") {
  const TransformerConfig model = model_preset("tiny-classifier");
  std::int64_t elements = 0;
  for (const Parameter& parameter : parameters(model)) {
    elements += parameter.elements();
  }
  RecordFile file{"run.jsonl", {}};
  file.record.steps = {step_row(0, 0)};
  CHECK_NOTHROW(check_gradients(file, model));  // No bucket times.
  file.record.steps[0].buckets = {{4 * 1000, 0, 1}, {4 * (elements - 1000), 1, 2}};
  CHECK_NOTHROW(check_gradients(file, model));
  file.record.steps[0].buckets[0].bytes += 4;
  CHECK_THROWS_WITH_AS(
      check_gradients(file, model), doctest::Contains("cannot be those of the"), InputError);
}
