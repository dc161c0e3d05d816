#include "sim/batching/lengths.h"

#include <algorithm>
#include <fstream>
#include <numeric>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "costmodel/base/input_error.h"
#include "sim/batching/histogram.h"
#include "sim/batching/known_lengths.h"
#include "tests/approx.h"
#include "tests/sim/batching/fixtures.h"
#include "tests/test_data.h"

using namespace stepsim;
using namespace stepsim::test;
using Kind = LengthSource::Kind;

namespace {

LengthSource source(Kind kind) {
  LengthSource result;
  result.kind = kind;
  result.min = 10;
  result.max = 20;
  return result;
}

/// A file of this text in a folder of its own.
std::string written(const std::string& text) {
  const std::string path = fresh_folder() + "/lengths";
  std::ofstream(path) << text;
  return path;
}

LengthSource from_file(Kind kind, const std::string& text) {
  LengthSource result = source(kind);
  result.file = written(text);
  return result;
}

std::string error_of(const LengthSource& bad, std::int64_t count) {
  try {
    (void)generate_lengths(bad, count);
  } catch (const InputError& error) {
    std::string message = error.what();
    const auto at = message.find(bad.file);
    return bad.file.empty() || at != 0 ? message : "FILE" + message.substr(bad.file.size());
  }
  return "no error";
}

std::int64_t sum(const Ids& lengths) {
  return std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
}

LengthHistogram histogram_of(const std::vector<std::int64_t>& counts) {
  LengthHistogram histogram;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] > 0) {
      histogram.counts.emplace_back(static_cast<std::int64_t>(i) + 1, counts[i]);
    }
  }
  return histogram;
}

}  // namespace

TEST_CASE("constant lengths are constant") {
  LengthSource constant;
  constant.constant = 128;
  CHECK(generate_lengths(constant, 3) == Ids{128, 128, 128});
}

TEST_CASE("the token-skew lab's data set has the published lengths") {
  LengthSource lab = source(Kind::LogUniform);
  lab.min = 64;
  lab.max = 256;
  lab.outlier_probability = 0.08;
  lab.label_classes = 16;
  lab.seed = 2026;
  const Ids lengths = generate_lengths(lab, 3072);
  const Ids first = {75, 218, 190, 181, 64, 199, 164, 104, 195, 174, 95, 66, 121, 213, 111, 140};
  CHECK(Ids(lengths.begin(), lengths.begin() + 16) == first);
  CHECK(sum(lengths) == 448584);
  CHECK(std::count(lengths.begin(), lengths.end(), 256) == 238);
  CHECK(std::count(lengths.begin(), lengths.end(), 64) == 23);
}

TEST_CASE("outliers of probability one are all of the longest length") {
  LengthSource outliers = source(Kind::LogUniform);
  outliers.outlier_probability = 1;
  CHECK(generate_lengths(outliers, 4) == Ids{20, 20, 20, 20});
}

TEST_CASE("uniform lengths follow Python's randrange and reach both ends") {
  LengthSource uniform = source(Kind::Uniform);
  uniform.seed = 7;
  // random.Random(7): [10 + randrange(11) for _ in range(6)]
  CHECK(generate_lengths(uniform, 6) == Ids{15, 12, 16, 20, 10, 11});
  const Ids many = generate_lengths(uniform, 1000);
  CHECK(*std::min_element(many.begin(), many.end()) == 10);
  CHECK(*std::max_element(many.begin(), many.end()) == 20);
}

TEST_CASE("log-normal lengths have the asked median and spread and stay inside the bounds") {
  LengthSource normal = source(Kind::LogNormal);
  normal.mu = 6;
  normal.sigma = 0.5;
  normal.min = 1;
  normal.max = 100000;
  Ids lengths = generate_lengths(normal, 20001);
  std::sort(lengths.begin(), lengths.end());
  // exp(6) = 403.4; one sigma above: 665.1; the median of 20001 draws is within 2 % (4 sigma).
  CHECK(static_cast<double>(lengths[10000]) == Approx(403.4).epsilon(0.02));
  CHECK(static_cast<double>(lengths[16827]) == Approx(665.1).epsilon(0.02));
  normal.min = 400;
  normal.max = 410;
  lengths = generate_lengths(normal, 500);
  CHECK(*std::min_element(lengths.begin(), lengths.end()) == 400);
  CHECK(*std::max_element(lengths.begin(), lengths.end()) == 410);
}

TEST_CASE("the same seed gives the same lengths, another seed others") {
  for (const Kind kind : {Kind::Uniform, Kind::LogUniform, Kind::LogNormal}) {
    LengthSource random = source(kind);
    random.mu = 2.7;
    const Ids first = generate_lengths(random, 100);
    CHECK(generate_lengths(random, 100) == first);
    random.seed = 1;
    CHECK(generate_lengths(random, 100) != first);
  }
}

TEST_CASE("a cap cuts what is longer and nothing else") {
  LengthSource uniform = source(Kind::Uniform);
  const Ids free = generate_lengths(uniform, 200);
  uniform.cap = 15;
  const Ids cut = generate_lengths(uniform, 200);
  for (std::size_t i = 0; i < free.size(); ++i) {
    CHECK(cut[i] == std::min<std::int64_t>(free[i], 15));
  }
  CHECK(longest_length(uniform) == 15);
}

TEST_CASE("histograms are sampled as the reference recipe says") {
  const auto data = fixture("recipe.lengths");
  if (!data) {
    return;
  }
  for (std::size_t i = 0; i < data->at("input").size(); ++i) {
    const Json& input = data->at("input")[i];
    if (input.at("recipe") != "histogram_sample") {
      continue;
    }
    const auto counts = histogram_counts(input.at("histogram"));
    REQUIRE(counts);
    Ids lengths = sample_histogram(histogram_of(*counts), input.at("n"), input.at("seed"));
    for (auto& length : lengths) {
      length = std::min(length, input.value("cap", std::int64_t{1} << 30));
    }
    CHECK(lengths == data->at("expected")[i].get<Ids>());
  }
}

TEST_CASE("the shipped SST-2 histogram is the reference one") {
  const auto histogram = read_histogram(source_root() + "/scenarios/lengths/sst2_train.json");
  CHECK(histogram.id == "sst2_train");
  CHECK(histogram.total() == 67349);
  CHECK_FALSE(histogram.source.empty());
  CHECK_FALSE(histogram.licence.empty());
  if (const auto counts = histogram_counts("sst2_train")) {
    CHECK(histogram.counts == histogram_of(*counts).counts);
  }
}

TEST_CASE("a histogram asked for more than it holds goes on with the next seed") {
  const auto histogram = histogram_of({1, 2, 1});  // 1 2 2 3
  const Ids first = sample_histogram(histogram, 0, 5);
  const Ids second = sample_histogram(histogram, 0, 6);
  CHECK(sum(first) == 8);
  Ids expected = first;
  expected.insert(expected.end(), second.begin(), second.begin() + 2);
  CHECK(sample_histogram(histogram, 6, 5) == expected);
}

TEST_CASE("a histogram file may list pairs, and length keys in any order") {
  const auto pairs =
      from_file(Kind::Histogram, R"({"format":"stepsim-lengths/1","counts":[[7,2],[3,1]]})");
  Ids lengths = generate_lengths(pairs, 0);
  std::sort(lengths.begin(), lengths.end());
  CHECK(lengths == Ids{3, 7, 7});
  const auto keys =
      from_file(Kind::Histogram, R"({"format":"stepsim-lengths/1","counts":{"7":2,"3":1}})");
  lengths = generate_lengths(keys, 0);
  std::sort(lengths.begin(), lengths.end());
  CHECK(lengths == Ids{3, 7, 7});
}

TEST_CASE("a damaged histogram file is bad input") {
  const auto counts_error = [](const std::string& counts) {
    return error_of(from_file(Kind::Histogram,
                              "{\"format\": \"stepsim-lengths/1\", \"counts\": " + counts + "}"),
                    5);
  };
  CHECK(counts_error("{\"3\": 1.5}") ==
        "FILE:1: error: counts: a count is not a whole number: 1.5");
  CHECK(counts_error("{\"3x\": 1}") ==
        "FILE:1: error: counts: a length is not a whole number: \"3x\"");
  CHECK(counts_error("{\"0\": 1}") == "FILE:1: error: counts: length 0 is outside 1 .. 1073741824");
  CHECK(counts_error("[[3, 1], [3, 2]]") == "FILE:1: error: counts: length 3 is given twice");
  CHECK(counts_error("[[3]]") == "FILE:1: error: counts: a list holds pairs: [[length, count], …]");
  CHECK(counts_error("{\"3\": -1}") ==
        "FILE:1: error: counts: count -1 of length 3: counts are 0 or more and at most 134217728 "
        "in sum");
  CHECK(counts_error("{}") == "FILE:1: error: counts: no sequence at all");
  CHECK(counts_error("7").starts_with("FILE:1: error: counts: expected"));
  CHECK(error_of(from_file(Kind::Histogram, "{\"format\": \"stepsim-plan/1\"}"), 5)
            .starts_with("FILE:1: error: format: "));
}

TEST_CASE("a file of lengths may hold comments and blank lines, and is taken in order") {
  const auto file = from_file(Kind::File, "# tokens\n12\n\n  7 # short\r\n9");
  CHECK(generate_lengths(file, 0) == Ids{12, 7, 9});
  CHECK(generate_lengths(file, 2) == Ids{12, 7});
}

TEST_CASE("a damaged file of lengths names line and column") {
  CHECK(error_of(from_file(Kind::File, "12\n  x7\n"), 2) ==
        "FILE:2:3: error: 'x7' is not a length; write one whole number a line\n  x7\n  ^");
  CHECK(error_of(from_file(Kind::File, "12\n0\n"), 2) ==
        "FILE:2:1: error: length 0 is outside 1 .. 1073741824\n0\n^");
  CHECK(error_of(from_file(Kind::File, "12\n3 4\n"), 2) ==
        "FILE:2:1: error: '3 4' is not a length; write one whole number a line\n3 4\n^");
  CHECK(error_of(from_file(Kind::File, "99999999999999999999\n"), 1).starts_with("FILE:1:1:"));
  CHECK(error_of(from_file(Kind::File, "12\n7\n"), 3) ==
        "FILE: error: 2 lengths, but 3 samples are asked for");
  CHECK(error_of(from_file(Kind::File, "# none\n"), 0) ==
        "FILE: error: holds no lengths; write the tokens of each sample, one number a line");
  LengthSource missing = source(Kind::File);
  missing.file = "/no/such/file";
  CHECK_THROWS_AS((void)generate_lengths(missing, 1), InputError);
}

TEST_CASE("contradicting parameters are bad input") {
  LengthSource bad = source(Kind::Uniform);
  bad.min = 21;
  CHECK(error_of(bad, 1) == "the shortest length is above the longest");
  bad = source(Kind::LogUniform);
  bad.min = 0;
  CHECK(error_of(bad, 1) == "the shortest length is below 1");
  bad = source(Kind::LogUniform);
  bad.outlier_probability = 1.5;
  CHECK(error_of(bad, 1) == "outlier_probability: expected a share from 0 to 1");
  bad = source(Kind::LogNormal);
  bad.sigma = -1;
  CHECK(error_of(bad, 1) == "sigma: expected a finite number, 0 or more");
  CHECK(error_of(LengthSource{}, 1) ==
        "constant: a sample is at least 1 token long, and at most 2^30");
  CHECK(error_of(source(Kind::Uniform), 0) == "samples: expected at least 1");
  CHECK(error_of(source(Kind::Uniform), kMaxSampleCount + 1) == "samples: at most 2^27");
}

TEST_CASE("lengths: a field of a JSONL file, as a number or as a list of tokens") {
  LengthSource jsonl =
      from_file(Kind::Jsonl, "{\"n\": 5}\n{\"n\": [7, 8, 9]}\n\n{\"n\": 2, \"more\": \"x\"}\n");
  jsonl.field = "n";
  CHECK(generate_lengths(jsonl, 0) == Ids{5, 3, 2});
  CHECK(generate_lengths(jsonl, 2) == Ids{5, 3});
  CHECK(error_of(jsonl, 4) == "FILE: error: 3 lengths, but 4 samples are asked for");
  jsonl.field = "m";
  CHECK(error_of(jsonl, 0).rfind("FILE:1: error:", 0) == 0);
  jsonl.field = "";
  CHECK(error_of(jsonl, 0) == "field: the name of a field");
  LengthSource text = from_file(Kind::Jsonl, "{\"n\": 1}\n{\"n\": \"words\"}\n");
  text.field = "n";
  CHECK(error_of(text, 0).find("a text has no length in tokens") != std::string::npos);
  CHECK(error_of(text, 0).rfind("FILE:2", 0) == 0);
  LengthSource empty = from_file(Kind::Jsonl, "{\"n\": []}\n");
  empty.field = "n";
  CHECK(error_of(empty, 0).find("length 0 is outside") != std::string::npos);
}

TEST_CASE("lengths: a plan gives back the lengths of its samples, by id") {
  const LengthSource plan = from_file(
      Kind::Plan,
      R"({"format":"stepsim-plan/1","scenario":"s","policy":"p","seed":0,"ranks":1,"steps":1,)"
      R"("warmup_steps":0,"model":{"name":"b","family":"blocks","layers":1,"hidden":1,"heads":1,)"
      R"("ffn":1,"vocab":1,"max_length":64,"dtype":"f32","parameter_dtype":"f32",)"
      R"("attention":"dense","block_elements":4},"optimizer":"sgd","initial_buckets":[[0]],)"
      R"("buckets":[[0]]})"
      "\n"
      R"({"step":0,"rank":0,"micro_batch":0,"samples":[4,1],"lengths":[9,3],"max_length":9,)"
      R"("useful_tokens":12,"padded_tokens":18,"loss_scale":1})"
      "\n");
  CHECK(generate_lengths(plan, 0) == Ids{3, 9});
}

TEST_CASE("lengths: a sample that a plan cuts is as long as the end of its last part") {
  const LengthSource plan = from_file(
      Kind::Plan,
      R"({"format":"stepsim-plan/1","scenario":"s","policy":"p","seed":0,"ranks":1,"steps":2,)"
      R"("warmup_steps":0,"model":{"name":"b","family":"blocks","layers":1,"hidden":1,"heads":1,)"
      R"("ffn":1,"vocab":1,"max_length":64,"dtype":"f32","parameter_dtype":"f32",)"
      R"("attention":"dense","block_elements":4},"optimizer":"sgd","initial_buckets":[[0]],)"
      R"("buckets":[[0]]})"
      "\n"
      R"({"step":0,"rank":0,"micro_batch":0,"samples":[4,1],"lengths":[5,3],"offsets":[9,0],)"
      R"("max_length":5,"useful_tokens":8,"padded_tokens":10,"loss_scale":1})"
      "\n"
      R"({"step":1,"rank":0,"micro_batch":0,"samples":[4],"lengths":[9],"offsets":[0],)"
      R"("max_length":9,"useful_tokens":9,"padded_tokens":9,"loss_scale":1})"
      "\n");
  CHECK(generate_lengths(plan, 0) == Ids{3, 14});
}

TEST_CASE("lengths: a mixture draws its parts by weight") {
  LengthSource mixed;
  mixed.kind = Kind::Mixture;
  mixed.seed = 3;
  LengthSource shorter;
  shorter.constant = 10;
  LengthSource longer;
  longer.constant = 1000;
  mixed.parts = {shorter, longer};
  mixed.weights = {3, 1};
  const Ids lengths = generate_lengths(mixed, 20'000);
  const auto many = std::count(lengths.begin(), lengths.end(), 1000);
  CHECK(many > 4800);  // 5000 expected, standard deviation 61.
  CHECK(many < 5200);
  CHECK(lengths == generate_lengths(mixed, 20'000));
  CHECK(longest_length(mixed) == 1000);
  mixed.weights = {3, 0};
  CHECK(error_of(mixed, 10) == "mixture: a weight is more than 0");
  mixed.weights = {3};
  CHECK(error_of(mixed, 10).rfind("mixture: expected", 0) == 0);
}

TEST_CASE("lengths: log-normal lengths with outliers at the cap") {
  LengthSource normal = source(Kind::LogNormal);
  normal.mu = 2.5;
  normal.sigma = 0.1;
  const auto at_cap = [&] {
    const Ids lengths = generate_lengths(normal, 10'000);
    return std::count(lengths.begin(), lengths.end(), normal.max);
  };
  CHECK(at_cap() < 10);
  normal.outlier_probability = 0.1;
  CHECK(at_cap() > 900);
  CHECK(at_cap() < 1100);
}

TEST_CASE("lengths: a study reads a data set once") {
  KnownLengths known;
  const LengthSource file = from_file(Kind::File, "5\n7\n9\n");
  CHECK(known.of(file, 2) == std::vector<std::int64_t>{5, 7});
  CHECK(known.of(file, 0) == std::vector<std::int64_t>{5, 7, 9});
  std::ofstream(file.file) << "1\n2\n3\n";
  CHECK(known.of(file, 2) == std::vector<std::int64_t>{5, 7});
  LengthSource other = file;
  other.cap = 1;
  CHECK(known.of(other, 2) == std::vector<std::int64_t>{1, 1});
  // The latest ones of many sets are kept.
  for (std::int64_t length = 1; length < 9; ++length) {
    LengthSource constant = source(Kind::Constant);
    constant.constant = length;
    CHECK(known.of(constant, 2) == std::vector(2, length));
  }
  CHECK(known.of(file, 2) == std::vector<std::int64_t>{1, 2});
}
