#include "costmodel/terminal/option_row.h"

#include <doctest/doctest.h>

#include "costmodel/base/input_error.h"

using namespace stepsim;

namespace {

struct Options {
  bool all = false;
  std::string name = "advice";
  int threads = 0;
  std::optional<double> price;
  std::optional<NumberRange> samples;
  std::vector<std::int64_t> rungs = {8, 32};
  std::vector<std::string> over;
};

template <typename Value>
OptionRow row(const char* name, Value Options::*member, const char* words) {
  OptionRow result;
  result.name = name;
  result.words = words;
  result.variable = [member](void* options) -> OptionVariable {
    return &(static_cast<Options*>(options)->*member);
  };
  return result;
}

const std::vector<OptionRow> kRows = {row("all", &Options::all, "all of it"),
                                      row("name", &Options::name, "NAME: of it"),
                                      row("threads", &Options::threads, "NUMBER: threads").from(0),
                                      row("price", &Options::price, "PRICE: of it").above(0),
                                      row("samples", &Options::samples, "LOW..HIGH: of it").from(0),
                                      row("rungs", &Options::rungs, "N[,N…]: of it").from(1),
                                      row("over", &Options::over, "KEY=VALUES: of it")};

std::string taken(const char* name, const OptionValue& value, Options& options) {
  for (const OptionRow& one : kRows) {
    if (one.name == name) {
      return set_option(one, &options, value);
    }
  }
  return "no such row";
}

std::string refused(const std::vector<std::string>& words) {
  Options options;
  CommandParser parser("program command", "usage: program command\n");
  add_rows(kRows, &options, parser);
  try {
    (void)parser.parse(words);
    take_given(kRows, parser, &options);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("the words of a command line set the members of a struct") {
  Options options;
  CommandParser parser("program command", "usage: program command\n");
  add_rows(kRows, &options, parser);
  REQUIRE(parser.parse({"--all",
                        "--threads=3",
                        "--samples",
                        "10..20.5",
                        "--rungs",
                        "4,8,16",
                        "--over",
                        "a=1",
                        "--over",
                        "b=2"}));
  take_given(kRows, parser, &options);
  CHECK(options.all);
  CHECK(options.name == "advice");
  CHECK(options.threads == 3);
  CHECK(!options.price);
  CHECK(options.samples == NumberRange(10, 20.5));
  CHECK(options.rungs == std::vector<std::int64_t>{4, 8, 16});
  CHECK(options.over == std::vector<std::string>{"a=1", "b=2"});
}

TEST_CASE("values of another language are taken as they are") {
  Options options;
  CHECK(taken("threads", std::int64_t{4}, options).empty());
  CHECK(taken("price", std::int64_t{2}, options).empty());
  CHECK(taken("samples", std::vector<std::int64_t>{3, 6}, options).empty());
  CHECK(taken("rungs", std::int64_t{16}, options).empty());
  CHECK(taken("over", std::string("a=1"), options).empty());
  CHECK(taken("name", std::int64_t{7}, options).empty());
  CHECK(options.threads == 4);
  CHECK(options.price == 2);
  CHECK(options.samples == NumberRange(3, 6));
  CHECK(options.rungs == std::vector<std::int64_t>{16});
  CHECK(options.name == "7");
  CHECK(!taken("threads", 2.5, options).empty());
  CHECK(!taken("threads", std::int64_t{1} << 40, options).empty());
  CHECK(!taken("all", std::string("yes"), options).empty());
  CHECK(!taken("name", true, options).empty());
  CHECK(!taken("name", std::vector<std::string>{"a", "b"}, options).empty());
  CHECK(options.threads == 4);
}

TEST_CASE("a wrong value is refused with what is right") {
  CHECK(refused({"--threads", "many"}).find("--threads takes a whole number, as 8, not 'many'") !=
        std::string::npos);
  CHECK(refused({"--threads", "-1"}).find("--threads must be 0 or more") != std::string::npos);
  CHECK(refused({"--price", "0"}).find("--price must be above 0") != std::string::npos);
  CHECK(refused({"--price", "nan"}).find("--price must be above 0") != std::string::npos);
  CHECK(refused({"--samples", "6..3"}).find("--samples: expected LOW..HIGH") != std::string::npos);
  CHECK(refused({"--rungs", "8,0"}).find("--rungs 8,0: '0' is no whole number") !=
        std::string::npos);
}

TEST_CASE("types and defaults come from the members") {
  Options options;
  const auto type = [&](std::size_t i) { return type_name(kRows[i].variable(&options)); };
  CHECK(type(0) == "flag");
  CHECK(type(1) == "text");
  CHECK(type(2) == "whole number");
  CHECK(type(3) == "number");
  CHECK(type(4) == "range");
  CHECK(type(5) == "whole numbers");
  CHECK(type(6) == "texts");
  CHECK(!value_of(kRows[3].variable(&options)));
  CHECK(value_of(kRows[5].variable(&options)) == OptionValue(std::vector<std::int64_t>{8, 32}));
}
