#include "sim/study/figures.h"

#include <cmath>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "costmodel/base/input_error.h"
#include "sim/report/figures_report.h"
#include "tests/sim/scenario/scenario_text.h"

using namespace stepsim;
using namespace stepsim::test;

namespace {

/// A scenario of a 70 B model with these [[published]] tables.
Scenario with(const std::string& published) {
  const std::string text = replaced(kScenarioText,
                                    "preset = \"tiny-classifier\"",
                                    "preset = \"llama2-7b\"\nparameters = 70_000_000_000\n"
                                    "parameter_dtype = \"f32\"");
  return parse_scenario(text + published, "s.toml", {});
}

FigureCheck check_of(const std::string& conditions) {
  const auto checks = check_figures(with("[[published]]\n" + conditions));
  REQUIRE(checks.size() == 1);
  return checks.front();
}

template <typename Action>
std::string error_of(Action action) {
  try {
    action();
  } catch (const InputError& error) {
    return error.what();
  }
  return "no error";
}

std::string error_of_figure(const std::string& conditions) {
  return error_of([&] { (void)with("[[published]]\n" + conditions); });
}

std::string quantity_error(const std::string& text, Dimension dimension) {
  return error_of([&] { (void)parse_quantity(text, dimension); });
}

}  // namespace

TEST_CASE("tokens of a step and attention scores of rows and documents") {
  CHECK(check_of("figure = \"step_tokens\"\nvalue = \"1 Mi\"\nranks = 8\n"
                 "accumulation_steps = 4\nsamples = 16\nlength = 2048\n")
            .agrees);
  CHECK(check_of("figure = \"attention_scores\"\nvalue = \"1\"\nsamples = 3\nlength = 5\n")
            .computed == 75);
  const auto scores =
      check_of("figure = \"attention_scores\"\nvalue = \"8 Mi\"\nsamples = 64\nlength = 512\n");
  CHECK(scores.computed == 16.0 * 0x1p20);
  CHECK(!scores.agrees);
  const auto saving = check_of(
      "figure = \"attention_saving\"\nvalue = \"4\"\nsamples = 64\nlength = 512\n"
      "row_length = 2048\n");
  CHECK(saving.computed == 4);
  CHECK(saving.agrees);
  CHECK(error_of_figure("figure = \"attention_saving\"\nvalue = \"4\"\nsamples = 64\n"
                        "length = 512\n")
            .find("row_length") != std::string::npos);
  CHECK(quantity_error("8 M", Dimension::Count) ==
        "unknown unit 'M' in '8 M'; use one of none, Ki, Mi");
}

TEST_CASE("a figure that is computed as nothing is off by no share of it") {
  const std::string none = "[[published]]\nfigure = \"ring_volume\"\nranks = 1\nvalue = ";
  const Scenario scenario = with(none + "\"5 GB\"\n");
  const auto checks = check_figures(scenario);
  REQUIRE(checks.size() == 1);
  CHECK(checks.front().computed == 0);
  CHECK_FALSE(checks.front().agrees);
  CHECK_FALSE(checks.front().published_off);
  const std::string text = figures_text(scenario, checks);
  CHECK(text.find("published is too high") != std::string::npos);
  CHECK(text.find("0.0 %") == std::string::npos);
  CHECK(figures_json(scenario, checks)["figures"][0]["published_off"].is_null());
}

TEST_CASE("ring volumes of 70 B fp32 gradients, by number of GPUs") {
  for (const auto& [ranks, gigabytes] :
       {std::pair{2, 280.0}, std::pair{4, 420.0}, std::pair{8, 490.0}, std::pair{64, 551.25}}) {
    const auto& at_ranks = ranks;  // Clang 14 captures no structured bindings.
    CAPTURE(at_ranks);
    const auto check = check_of(
        "figure = \"ring_volume\"\nvalue = \"1 GB\"\nranks = " + std::to_string(ranks) + "\n");
    CHECK(check.computed == doctest::Approx(gigabytes * 1e9).epsilon(1e-12));
  }
}

TEST_CASE("conditions that are left out are the scenario's") {
  // 4 ranks: 2 x 3/4 x 280 GB.
  CHECK(check_of("figure = \"ring_volume\"\nvalue = \"1 GB\"\n").computed ==
        doctest::Approx(420e9));
  CHECK(check_of("figure = \"ring_volume\"\nvalue = \"1 GB\"\nparameters = 1000\n").computed ==
        doctest::Approx(6000));
  // AdamW's 8 bytes, and no sharding.
  CHECK(check_of("figure = \"state_memory\"\nvalue = \"1 GB\"\n").computed ==
        doctest::Approx(16 * 70e9));
}

TEST_CASE("an all-reduce takes its volume over the bandwidth") {
  const auto check =
      check_of("figure = \"all_reduce_time\"\nvalue = \"15.0 s\"\nbandwidth = \"28 GB/s\"\n");
  CHECK(check.computed == doctest::Approx(15));
  CHECK(check.agrees);
}

TEST_CASE("states by ZeRO stage, the gradient shard included") {
  const double expected[] = {840, 840 - 560 * 7 / 8.0, 140 + 700 / 8.0, 105};
  for (int stage = 0; stage <= 3; ++stage) {
    CAPTURE(stage);
    const std::string text =
        "[[published]]\nfigure = \"state_memory\"\nvalue = \"1 GB\"\nranks = 8\n"
        "zero_stage = " +
        std::to_string(stage) + "\n";
    Scenario scenario = with(text);
    scenario.model.parameter_dtype = Dtype::Bf16;
    CHECK(check_figures(scenario)[0].computed == doctest::Approx(expected[stage] * 1e9));
  }
  const auto twelve =
      check_of("figure = \"state_memory\"\nvalue = \"1 GB\"\noptimizer_bytes = 12\n");
  CHECK(twelve.computed == doctest::Approx(20 * 70e9));
}

TEST_CASE("compressed volumes count all that is sent") {
  const auto volume = [](const std::string& hook) {
    return check_of("figure = \"compressed_volume\"\nvalue = \"1 GB\"\nranks = 8\nhook = " + hook)
        .computed;
  };
  CHECK(volume("\"none\"\n") == doctest::Approx(490e9));
  CHECK(volume("\"fp16\"\n") == doctest::Approx(245e9));
  // 1 % of 70e9 values and indices, 4 bytes each, of seven others.
  CHECK(volume("\"top_k\"\ntopk_fraction = 0.01\n") == doctest::Approx(7 * 2 * 2.8e9));
  // Llama-2-7b, rank r: 32 layers of 4 (4096 + 4096) + 3 (4096 + 11008), two of 32000 + 4096, and
  // 65 norms of 4096.
  const double rank4 = 4.0 * (32 * (4 * 8192 + 3 * 15104) + 2 * 36096) + 65 * 4096;
  CHECK(volume("\"power_sgd\"\npowersgd_rank = 4\n") ==
        doctest::Approx(2.0 * 7 / 8 * 4 * rank4).epsilon(1e-12));
}

TEST_CASE("buckets are counted as DDP makes them: one a matrix below 64 MiB") {
  const auto count = [](const std::string& cap) {
    return check_of("figure = \"bucket_count\"\nvalue = \"1\"\nbucket_cap = \"" + cap + "\"\n")
        .computed;
  };
  CHECK(count("1 MiB") == 32 * 7 + 2);
  CHECK(count("25 MiB") == 32 * 7 + 2);
  CHECK(count("100 MiB") < 32 * 7 + 2);
}

TEST_CASE("a compute time is operations over speed") {
  const auto check = check_of(
      "figure = \"compute_time\"\nvalue = \"100 ms\"\nsamples = 4\nlength = 4096\n"
      "speed = \"989 TFLOP/s\"\n");
  CHECK(check.computed ==
        doctest::Approx(training_flops(with("").model, 4, 4096) / 989e12).epsilon(1e-12));
  CHECK_FALSE(check.agrees);
}

TEST_CASE("a figure agrees up to a half of its last digit") {
  const auto agrees = [](const std::string& value) {
    return check_of("figure = \"ring_volume\"\nranks = 64\nvalue = \"" + value + "\"\n").agrees;
  };
  CHECK(agrees("551.25 GB"));
  CHECK(agrees("551.3 GB"));
  CHECK(agrees("551 GB"));
  CHECK_FALSE(agrees("551.1 GB"));
  CHECK_FALSE(agrees("552 GB"));
  CHECK_FALSE(agrees("550 GB"));
  CHECK(agrees("~550 GB"));
  CHECK(agrees("0.551 TB"));
}

TEST_CASE("only a difference that the note does not explain is unexplained") {
  const std::string wrong = "figure = \"ring_volume\"\nranks = 64\nvalue = \"548 GB\"\n";
  CHECK(check_of(wrong).unexplained());
  CHECK(check_of(wrong).published_off == doctest::Approx(548 / 551.25 - 1));
  CHECK_FALSE(check_of(wrong + "note = \"misprint\"\n").unexplained());
  CHECK_FALSE(check_of("figure = \"ring_volume\"\nvalue = \"420 GB\"\n").unexplained());
}

TEST_CASE("a source holds until the next one") {
  const std::string figure = "[[published]]\nfigure = \"ring_volume\"\nvalue = \"1 GB\"\n";
  const auto checks =
      check_figures(with(figure + "source = \"a\"\n" + figure + figure + "source = \"b\"\n"));
  CHECK(checks[1].published.source == "a");
  CHECK(checks[2].published.source == "b");
}

TEST_CASE("the text numbers the notes and counts what agrees") {
  const std::string figure = "[[published]]\nfigure = \"ring_volume\"\nsource = \"a table\"\n";
  const Scenario scenario =
      with(figure + "value = \"420 GB\"\n" + figure + "value = \"400 GB\"\nnote = \"misprint\"\n" +
           figure + "value = \"42 GB\"\n");
  CHECK(figures_text(scenario, check_figures(scenario)) ==
        "token skew: What does padding cost?\n\n"
        "figure       conditions               published  computed  published off by  verdict\n"
        "ring_volume  4 GPUs, 70 B parameters     420 GB    420 GB            +0.0 %  agrees\n"
        "ring_volume  4 GPUs, 70 B parameters     400 GB    420 GB            -4.8 %  published is "
        "too low [1]\n"
        "ring_volume  4 GPUs, 70 B parameters      42 GB    420 GB           -90.0 %  published is "
        "too low\n\n"
        "[1] misprint\n\n"
        "model: llama2-7b, parameters and gradients in f32\n"
        "ring_volume = 2(n-1)/n x bytes of all gradients\n"
        "source: a table\n"
        "1 of 3 published figures agree within their rounding; 1 differ without an explanation.\n");
}

TEST_CASE("unknown figures, conditions and hooks are refused with their place") {
  CHECK(error_of_figure("figure = \"ring_volum\"\nvalue = \"1 GB\"\n")
            .starts_with("s.toml:37:10: error: published.figure: unknown figure 'ring_volum'; did "
                         "you mean 'ring_volume'? known: ring_volume, all_reduce_time,"));
  CHECK(error_of_figure("figure = \"ring_volume\"\nvalue = \"1 GB\"\nzero_stage = 1\n")
            .starts_with("s.toml:39:14: error: published.zero_stage: does not apply to figure "
                         "'ring_volume', which takes ranks, parameters\n"));
  CHECK(error_of_figure("figure = \"all_reduce_time\"\nvalue = \"1 s\"\n")
            .starts_with("s.toml:36:1: error: published.bandwidth: missing\n"));
  CHECK(error_of_figure("figure = \"all_reduce_time\"\nvalue = \"1 s\"\nbandwidth = \"0 GB/s\"\n")
            .starts_with("s.toml:39:13: error: published.bandwidth: expected a bandwidth above 0"));
  CHECK(error_of_figure("figure = \"ring_volume\"\n")
            .starts_with("s.toml:36:1: error: published.value: missing\n"));
  CHECK(error_of_figure("figure = \"ring_volume\"\nvalue = \"1 s\"\n")
            .starts_with("s.toml:38:9: error: published.value: unknown unit 's' in '1 s'; use one "
                         "of B, kB, MB, GB, TB,"));
  CHECK(error_of_figure("figure = \"compressed_volume\"\nvalue = \"1 GB\"\nhook = \"fp15\"\n")
            .starts_with("s.toml:39:8: error: published.hook: unknown communication hook 'fp15'; "
                         "did you mean 'fp16'?"));
  CHECK(error_of_figure("figure = \"compressed_volume\"\nvalue = \"1 GB\"\nhook = \"top_k\"\n"
                        "topk_fraction = 2\n")
            .starts_with("s.toml:40:17: error: published.topk_fraction: expected a share"));
  CHECK(error_of_figure("figur = \"ring_volume\"\n")
            .starts_with("s.toml:37:1: error: published: unknown key 'figur'; did you mean "
                         "'figure'?"));
}

TEST_CASE("a scenario without published figures has none to check") {
  CHECK(error_of([] { (void)check_figures(with("")); }) ==
        "s.toml: error: no published figure: add a [[published]] table");
}

TEST_CASE("quantities know their unit, digits and rounding") {
  const Quantity seconds = parse_quantity("0.31 s", Dimension::Time);
  CHECK(seconds.value == doctest::Approx(0.31));
  CHECK(seconds.half_unit == doctest::Approx(0.005));
  const Quantity rough = parse_quantity("~190 ms", Dimension::Time);
  CHECK(rough.value == doctest::Approx(0.19));
  CHECK(rough.half_unit == doctest::Approx(0.005));
  CHECK(parse_quantity("~5 GB", Dimension::Size).half_unit == doctest::Approx(0.5e9));
  CHECK(parse_quantity("25 MiB", Dimension::Size).value == 25 * 0x1p20);
  CHECK(parse_quantity("989TFLOP/s", Dimension::Speed).value == 989e12);
  CHECK(parse_quantity(" 28000 ", Dimension::Number).value == 28000);
  CHECK(parse_quantity("28000", Dimension::Number).half_unit == 0.5);
  CHECK(format_like(seconds, 0.6125) == "0.6125 s");
  CHECK(format_like(parse_quantity("548 GB", Dimension::Size), 551.25e9) == "551.25 GB");
  CHECK(format_like(parse_quantity("10.0 s", Dimension::Time), 10) == "10 s");
  CHECK(format_like(parse_quantity("28000", Dimension::Number), 226) == "226");
}

TEST_CASE("what is no quantity is refused") {
  CHECK(quantity_error("many GB", Dimension::Size) ==
        "'many GB' does not start with a number above 0");
  CHECK(quantity_error("0 GB", Dimension::Size) == "'0 GB' does not start with a number above 0");
  CHECK(quantity_error("-3 GB", Dimension::Size) == "'-3 GB' does not start with a number above 0");
  CHECK(quantity_error("", Dimension::Size) == "'' does not start with a number above 0");
  CHECK(quantity_error("3 GB", Dimension::Number) == "'3 GB': expected a number without unit");
  CHECK(quantity_error("3 GB", Dimension::Speed) ==
        "unknown unit 'GB' in '3 GB'; use one of GFLOP/s, TFLOP/s, PFLOP/s");
}
