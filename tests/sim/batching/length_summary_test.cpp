#include "sim/batching/length_summary.h"

#include <cmath>
#include <stdexcept>
#include <utility>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "costmodel/io/json_file.h"
#include "sim/batching/histogram.h"
#include "sim/batching/lengths.h"
#include "tests/approx.h"
#include "tests/test_data.h"

using namespace stepsim;
using stepsim::test::Approx;

TEST_CASE("length summary: figures of a list worked out by hand") {
  // Batches of 8: 1..8 padded to 8, and 100 alone.
  const LengthSummary s = summarise_lengths({1, 2, 3, 4, 5, 6, 7, 8, 100});
  CHECK(s.samples == 9);
  CHECK(s.tokens == 136);
  CHECK(s.shortest == 1);
  CHECK(s.longest == 100);
  CHECK(s.mean == Approx(136.0 / 9));
  CHECK(s.padding_in_random_batches == Approx(1 - 136.0 / 164));
  CHECK(s.longest_percent_tokens == Approx(100.0 / 136));
  REQUIRE(s.percentiles.size() == 10);
  CHECK(s.percentiles[4] == std::pair<double, std::int64_t>{50, 5});
  CHECK(s.percentiles.back().second == 100);
  std::int64_t samples = 0;
  double tokens = 0;
  std::int64_t next = 1;
  for (const LengthBar& bar : s.bars) {
    CHECK(bar.low == next);
    next = bar.high + 1;
    samples += bar.samples;
    tokens += bar.token_share;
  }
  CHECK(next == 101);
  CHECK(samples == 9);
  CHECK(tokens == Approx(1));
  CHECK(s.bars.size() <= 16);
  CHECK_THROWS_AS((void)summarise_lengths({}), std::invalid_argument);
}

TEST_CASE("length summary: bars stay few over a wide range") {
  const LengthSummary s = summarise_lengths({1, 1'000'000'000});
  CHECK(s.bars.size() <= 16);
  CHECK(s.bars.back().high == 1'000'000'000);
}

TEST_CASE("shipped histograms have the published statistics") {
  const auto file = test::data_file("length_histograms.json");
  if (!file) {
    return;
  }
  const Json published = Json::parse(read_text(*file));
  for (const Json& entry : published.at("distributions")) {
    const auto id = entry.at("id").get<std::string>();
    CAPTURE(id);
    const LengthHistogram histogram =
        read_histogram(test::source_root() + "/scenarios/lengths/" + id + ".json");
    CHECK(histogram.total() == entry.at("n").get<std::int64_t>());
    const LengthSummary s = summarise_lengths(sample_histogram(histogram, 0, 1));
    const Json& stats = entry.at("stats");
    // Three are rebuilt from quantiles and logarithmic bins.
    const bool exact = entry.at("kind") != "quantiles_and_log_bins";
    // Published with two decimals.
    const double off = std::abs(s.mean - stats.at("mean").get<double>());
    CHECK(off <= (exact ? 0.0051 : 0.02 * s.mean));
    CHECK(static_cast<double>(s.percentiles[4].second) ==
          Approx(stats.at("p50").get<double>()).epsilon(exact ? 1e-9 : 0.01));
    if (exact) {
      CHECK(s.longest == stats.at("max").get<std::int64_t>());
    }
  }
}
