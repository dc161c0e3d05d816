#include "sim/points/exact_json.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include <doctest/doctest.h>

#include "sim/points/prediction_members.h"
#include "sim/predict/predict.h"
#include "sim/report/json.h"
#include "sim/study/sweep_members.h"
#include "tests/source_root.h"

using namespace stepsim;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

template <typename T>
T round_trip(const T& value) {
  return from_exact_text<T>(exact_text(value));
}

/// Gives every member of a value, and of all that it holds, a value of its own.
class Filler {
 public:
  template <typename T>
  void fill(T& value) {
    if constexpr (std::is_same_v<T, bool>) {
      value = true;
    } else if constexpr (std::is_enum_v<T>) {
      value = static_cast<T>(1);
    } else if constexpr (std::is_integral_v<T>) {
      value = static_cast<T>(++count_ % 100);
    } else if constexpr (std::is_same_v<T, double>) {
      value = ++count_ / 7.0;
    } else if constexpr (std::is_same_v<T, std::string>) {
      value = "text " + std::to_string(++count_);
    } else if constexpr (std::is_same_v<T, SimTime>) {
      value = SimTime(Duration(++count_));
    } else if constexpr (std::is_same_v<T, Duration>) {
      value = Duration(++count_);
    } else if constexpr (exact::IsCount<T>::value) {
      value = T(++count_);
    } else if constexpr (exact::IsOptional<T>::value) {
      fill(value.emplace());
    } else if constexpr (exact::IsVector<T>::value) {
      value.resize(2);
      fill(value[0]);
      fill(value[1]);
    } else if constexpr (exact::IsVariant<T>::value) {
      fill_alternative<0>(value);
    } else {
      fill_members(value);
    }
  }

  /// The notes hold each kind once.
  void fill(std::vector<Note>& notes) {
    notes.resize(std::variant_size_v<Note>);
    fill_notes(notes, std::make_index_sequence<std::variant_size_v<Note>>());
  }

 private:
  template <std::size_t number, typename T>
  void fill_alternative(T& value) {
    fill(value.template emplace<number>());
  }
  template <std::size_t... numbers>
  void fill_notes(std::vector<Note>& notes, std::index_sequence<numbers...>) {
    (fill_alternative<numbers>(notes[numbers]), ...);
  }

  /// The members must lie side by side and leave nothing but padding between them: a member that
  /// members() leaves out, or names twice, is found here.
  template <typename T>
  void fill_members(T& value) {
    std::vector<std::pair<std::ptrdiff_t, std::ptrdiff_t>> places;
    const auto visit = [&](auto& member) {
      const auto begin =
          reinterpret_cast<const char*>(&member) - reinterpret_cast<const char*>(&value);
      places.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(sizeof(member)));
      fill(member);
    };
    std::apply([&](auto&... member) { (visit(member), ...); }, members(value));
    std::ranges::sort(places);
    std::ptrdiff_t end = 0;
    for (const auto& [first, last] : places) {
      CHECK(first >= end);
      CHECK(first - end < 8);
      end = last;
    }
    CHECK(static_cast<std::ptrdiff_t>(sizeof(T)) - end < 8);
  }

  int count_ = 0;
};

}  // namespace

TEST_CASE("every double reads back with all its bits") {
  for (const double value : {0.0,
                             -0.0,
                             0.1,
                             1.0 / 3,
                             -2.5e-300,
                             1e16,
                             123456789012345678.0,
                             std::numeric_limits<double>::max(),
                             std::numeric_limits<double>::min(),
                             std::numeric_limits<double>::denorm_min(),
                             kInfinity,
                             -kInfinity}) {
    CAPTURE(value);
    const double back = round_trip(value);
    CHECK(std::memcmp(&back, &value, sizeof(value)) == 0);
  }
  CHECK(std::isnan(round_trip(std::nan(""))));
  double value = 0.1;
  for (int i = 0; i < 10000; ++i) {
    value = std::fmod(value * 1234.5678 + 0.9, 1.0) * std::pow(10.0, i % 40 - 20);
    const double back = round_trip(value);
    REQUIRE(std::memcmp(&back, &value, sizeof(value)) == 0);
  }
}

TEST_CASE("whole numbers, texts and what may be absent read back") {
  CHECK(round_trip(std::numeric_limits<std::int64_t>::min()) ==
        std::numeric_limits<std::int64_t>::min());
  CHECK(round_trip(SimTime::max()) == SimTime::max());
  CHECK(round_trip(std::string("a\n\"\\\t\xc3\xa9 \x01")) == "a\n\"\\\t\xc3\xa9 \x01");
  CHECK(round_trip(std::string("not UTF-8: \xff\x80")) == "not UTF-8: \xff\x80");
  CHECK(exact_text(std::string("line\nbreak")).find('\n') == std::string::npos);
  CHECK_FALSE(round_trip(std::optional<double>()));
  CHECK(round_trip(std::optional<double>(2.5)) == 2.5);
}

TEST_CASE("every member of a sweep's point reads back") {
  SweepPoint point;
  Filler filler;
  filler.fill(point);
  CHECK(point.prediction.notes.size() == std::variant_size_v<Note>);
  const std::string text = exact_text(point);
  const SweepPoint back = from_exact_text<SweepPoint>(text);
  CHECK(exact_text(back) == text);
  CHECK(back.prediction.steps[1].peak_memory_mib == point.prediction.steps[1].peak_memory_mib);
  CHECK(back.prediction.steps[1].waiting_ms == point.prediction.steps[1].waiting_ms);
  CHECK(back.prediction.ranks[1].padded_tokens == point.prediction.ranks[1].padded_tokens);
  CHECK(back.prediction.timelines == point.prediction.timelines);
  CHECK(back.picture->timeline == point.picture->timeline);
  CHECK(back.picture->bucket_cap == point.picture->bucket_cap);
  CHECK(back.collective_source == point.collective_source);
}

TEST_CASE("a prediction that was read back makes the same report") {
  const Scenario scenario = read_scenario(test::source_root() + "/scenarios/token_skew.toml");
  PredictOptions options;
  options.training_effects = true;
  options.paired_draws = true;
  options.timeline_of_step = 3;
  const Prediction prediction =
      predict(scenario, scenario.policies.front(), scenario_profile(scenario), options);
  const std::string text = exact_text(prediction);
  const Prediction back = from_exact_text<Prediction>(text);
  CHECK(exact_text(back) == text);
  CHECK(back.timelines == prediction.timelines);
  CHECK(prediction_json(std::vector{back}, StepRows::All).dump() ==
        prediction_json(std::vector{prediction}, StepRows::All).dump());
}

TEST_CASE("what another build has written is refused") {
  CHECK_THROWS_AS((void)from_exact_text<TokenBudget>("[1]"), InputError);
  CHECK_THROWS_AS((void)from_exact_text<TokenBudget>("[1,2,3]"), InputError);
  CHECK_THROWS_AS((void)from_exact_text<TokenBudget>("[1,2.5]"), InputError);
  CHECK_THROWS_AS((void)from_exact_text<TokenBudget>("{\"tokens\":1}"), InputError);
  CHECK_THROWS_AS((void)from_exact_text<Note>("[99,[]]"), InputError);
  CHECK_THROWS_AS((void)from_exact_text<int>("3000000000"), InputError);
  CHECK_THROWS_AS((void)from_exact_text<std::string>("{\"hex\":\"zz\"}"), InputError);
  CHECK(from_exact_text<TokenBudget>("[1,2]").length == 2);
}
