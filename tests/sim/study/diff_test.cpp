#include <cmath>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "costmodel/base/input_error.h"
#include "costmodel/records/record_files.h"
#include "sim/report/diff/diff_report.h"
#include "sim/study/diff/record_diff.h"
#include "tests/approx.h"

using namespace stepsim;
using stepsim::test::Approx;

namespace {

/// Times of two runs by a law of their batches, with noise that neighbours share in part.
struct MadeTimes {
  std::vector<DiffMark> marks;
  std::vector<double> times;
};

/// `walk`: the machine's speed walks at random by this share a step. `turns`: the sides take turns
/// of four steps on one clock, else one run follows the other.
MadeTimes made(unsigned seed, int steps, double change, double memory, double walk, bool turns) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  MadeTimes result;
  double noise = 0;
  double speed = 0;
  for (int i = 0; i < 2 * steps; ++i) {
    const bool after = turns ? i / 4 % 2 == 1 : i >= steps;
    const double tokens = 100.0 + 10 * static_cast<double>(random() % 40);
    noise = memory * noise + normal(random) * std::sqrt(1 - memory * memory);
    speed += walk * normal(random);
    result.marks.push_back({after, after ? 1U : 0U, static_cast<double>(i), 0, {tokens}});
    result.times.push_back((20 + 0.1 * tokens) * (1 + speed) + noise + (after ? change : 0));
  }
  return result;
}

/// In how many of 300 comparisons a change is found.
int found(int steps, double change, double memory, double walk, bool turns) {
  int count = 0;
  for (unsigned seed = 1; seed <= 300; ++seed) {
    const MadeTimes one = made(seed, steps, change, memory, walk, turns);
    const auto effect = StepComparison(one.marks, turns).effect(one.times);
    REQUIRE(effect);
    count += effect->is_real(kPartsAlarm) ? 1 : 0;
  }
  return count;
}

StepRecord row_of_rank(int step, int rank, std::int64_t tokens, double ms) {
  StepRecord row;
  row.step = step;
  row.rank = rank;
  row.samples = 8;
  row.max_length = tokens / 8;
  row.useful_tokens = row.padded_tokens = tokens;
  row.start_ms = 1000.0 * step;
  row.forward_ms = ms;
  row.step_ms = ms;
  return row;
}

/// A run of one rank whose forward takes 5 ms and 10 us a token.
RecordFile made_file(const std::string& name,
                     std::int64_t fewest,
                     std::int64_t most,
                     unsigned seed) {
  std::mt19937 random(seed);
  RecordFile file{name, {}};
  file.record.world_size = 1;
  file.record.started_at = "2026-11-27T10:00:00Z";
  file.record.host = name;
  for (int step = 0; step < 60; ++step) {
    const auto span = static_cast<unsigned>(most - fewest) / 8 + 1;
    const std::int64_t tokens = fewest + 8 * static_cast<std::int64_t>(random() % span);
    const double noise = 0.01 * static_cast<double>(random() % 10);
    file.record.steps.push_back(
        row_of_rank(step, 0, tokens, 5 + 0.01 * static_cast<double>(tokens) + noise));
  }
  return file;
}

}  // namespace

TEST_CASE("diff: false alarms are as rare as is said, where steps depend on one another, too") {
  // 3 of 300 are expected at 1 %; more than 9 come by chance in 1 of 1000.
  CHECK(found(80, 0, 0, 0, false) <= 9);
  CHECK(found(80, 0, 0, 0, true) <= 9);
  CHECK(found(80, 0, 0.5, 0, true) <= 9);
  CHECK(found(80, 0, 0.5, 0, false) <= 9);
}

TEST_CASE("diff: a machine that drifts is no change of the training") {
  CHECK(found(80, 0, 0, 0.002, true) <= 9);
  // Runs one behind the other: without the drift's part of the error 151 of 300 are found here.
  CHECK(found(80, 0, 0, 0.002, false) <= 20);
}

TEST_CASE("diff: a change is found that is some standard errors large") {
  // The standard error is 1 / sqrt(40) = 0.16 by turns; one behind the other, drift is allowed for.
  CHECK(found(80, 1, 0, 0, true) >= 290);
  // 189 of them are found.
  CHECK(found(80, 1, 0, 0, false) >= 150);
}

TEST_CASE("diff: the change is that at equal batches, and other batches are told apart") {
  const RecordFile before = made_file("a", 400, 1200, 1);
  RecordFile after = made_file("b", 800, 1600, 2);
  const RecordDiff same = diff_records({&before, 1}, {&after, 1});
  CHECK(same.verdict == DiffVerdict::NoDifference);
  CHECK(std::abs(same.step.change) < 0.05);
  CHECK(same.batches.ms == Approx(4).epsilon(0.15));
  CHECK_FALSE(same.same_batches);
  for (StepRecord& row : after.record.steps) {
    row.forward_ms += 1;
    row.step_ms += 1;
  }
  const RecordDiff slower = diff_records({&before, 1}, {&after, 1});
  CHECK(slower.verdict == DiffVerdict::Slower);
  CHECK(slower.step.change == Approx(1).epsilon(0.05));
  REQUIRE(slower.causes.size() == 1);
  CHECK(slower.causes.front().part == StepPart::Forward);
  CHECK_FALSE(slower.sizes_differ);
}

TEST_CASE("diff: where all ranks moved the figure is their mean") {
  RecordFile before = made_file("a", 400, 1200, 1);
  RecordFile after = made_file("b", 400, 1200, 2);
  const double of_rank[] = {3, 4, 5};
  for (RecordFile* file : {&before, &after}) {
    file->record.world_size = 3;
    std::vector<StepRecord> rows;
    for (const StepRecord& row : file->record.steps) {
      for (int rank = 0; rank < 3; ++rank) {
        StepRecord own = row;
        own.rank = rank;
        own.forward_ms += file == &after ? of_rank[rank] : 0;
        own.step_ms = row.step_ms + (file == &after ? 5 : 0);
        rows.push_back(own);
      }
    }
    file->record.steps = rows;
  }
  const RecordDiff diff = diff_records({&before, 1}, {&after, 1});
  REQUIRE(!diff.causes.empty());
  const DiffCause& cause = diff.causes.front();
  CHECK(cause.part == StepPart::Forward);
  CHECK(cause.ranks.empty());
  CHECK(cause.ms == Approx(4).epsilon(0.03));
  CHECK(cause.interval.first < 4);
  CHECK(cause.interval.second > 4);
}

TEST_CASE("diff: a cost that grows with the batch is named as one of long batches") {
  const RecordFile before = made_file("a", 400, 1600, 1);
  RecordFile after = made_file("b", 400, 1600, 1);
  for (StepRecord& row : after.record.steps) {
    row.forward_ms *= 1.1;
    row.step_ms = row.forward_ms;
  }
  const RecordDiff diff = diff_records({&before, 1}, {&after, 1});
  CHECK(diff.same_batches);
  CHECK(diff.batches.ms == Approx(0).epsilon(0.01));
  REQUIRE(diff.sizes.size() == 3);
  CHECK(diff.sizes_differ);
  CHECK_FALSE(diff.shares_differ);
}

TEST_CASE("diff: sides without a size in common are compared by useful tokens a second") {
  const auto set_useful = [](RecordFile& file, double share, double longer) {
    for (StepRecord& row : file.record.steps) {
      row.useful_tokens = static_cast<std::int64_t>(share * static_cast<double>(row.padded_tokens));
      row.forward_ms *= longer;
      row.step_ms = row.forward_ms;
    }
  };
  const auto speed_of = [](const RecordFile& file) {
    double tokens = 0;
    double ms = 0;
    for (const StepRecord& row : file.record.steps) {
      tokens += static_cast<double>(row.useful_tokens);
      ms += row.step_ms;
    }
    return 1e3 * tokens / ms;
  };
  RecordFile before = made_file("a", 400, 800, 1);
  set_useful(before, 0.5, 1);
  RecordFile after = made_file("b", 4000, 8000, 2);
  set_useful(after, 0.9, 1);
  const RecordDiff faster = diff_records({&before, 1}, {&after, 1});
  CHECK(faster.other_batches);
  CHECK(faster.verdict == DiffVerdict::Faster);
  CHECK(faster.parts.empty());
  REQUIRE(faster.speed);
  CHECK(faster.speed->before == Approx(speed_of(before)).epsilon(0.05));  // Without its warm-up.
  CHECK(faster.speed->after == Approx(speed_of(after)).epsilon(0.05));
  const auto [low, high] = faster.speed->interval(kVerdictAlarm);
  CHECK(low > 0);
  CHECK(low < faster.speed->gain());
  CHECK(high > faster.speed->gain());
  CHECK(diff_headline(faster).find("useful tokens/s (+") != std::string::npos);
  const Json json = diff_json(faster, {{"a"}, {"b"}});
  CHECK(json.at("step").is_null());
  CHECK(json.at("useful_tokens_per_s").at("change") == faster.speed->gain());
  const RecordDiff slower = diff_records({&after, 1}, {&before, 1});
  CHECK(slower.verdict == DiffVerdict::Slower);
  CHECK(slower.speed->gain() == Approx(1 / (1 + faster.speed->gain()) - 1));
  RecordFile alike = made_file("c", 4000, 8000, 3);
  set_useful(alike, 0.5, 1);
  set_useful(alike, 0.5, speed_of(alike) / faster.speed->before);
  CHECK(diff_records({&before, 1}, {&alike, 1}).verdict == DiffVerdict::NoDifference);
}

TEST_CASE("diff: sides of other ranks, of one run or without a word of their work are refused") {
  const RecordFile before = made_file("a", 400, 800, 1);
  RecordFile far = made_file("b", 4000, 8000, 2);
  for (StepRecord& row : far.record.steps) {
    row.useful_tokens = 0;
  }
  CHECK_THROWS_WITH_AS((void)diff_records({&before, 1}, {&far, 1}),
                       doctest::Contains("the records say no useful tokens"),
                       InputError);
  CHECK_THROWS_WITH_AS((void)diff_records({&before, 1}, {&before, 1}),
                       doctest::Contains("the same run"),
                       InputError);
  RecordFile wide = made_file("c", 400, 800, 3);
  wide.record.world_size = 2;
  CHECK_THROWS_WITH_AS(
      (void)diff_records({&before, 1}, {&wide, 1}), doctest::Contains("on 2 ranks"), InputError);
  RecordFile few = made_file("d", 400, 800, 4);
  few.record.steps.resize(11);
  CHECK_THROWS_WITH_AS(
      (void)diff_records({&before, 1}, {&few, 1}), doctest::Contains("11 steps"), InputError);
}

TEST_CASE("diff: the wait for ranks and the network are told apart by the launches") {
  // Rank 1 launches 3 ms later than rank 0; both end 2 ms after that.
  StepRecord first = row_of_rank(0, 0, 800, 10);
  StepRecord second = row_of_rank(0, 1, 800, 10);
  first.wait_ms = 5;
  second.wait_ms = 2;
  first.buckets = {{100, 4, 9}};
  second.buckets = {{100, 7, 9}};
  const std::vector<StepPart> parts = {StepPart::WaitingForRanks, StepPart::Communication};
  const auto times = part_times({&first, &second}, WaitReading::Buckets, parts);
  CHECK(times[0] == std::vector<double>{3, 2});
  CHECK(times[1] == std::vector<double>{0, 2});
}
