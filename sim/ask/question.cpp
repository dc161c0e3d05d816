#include "sim/ask/question.h"

#include <algorithm>

#include <fmt/format.h>

#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"

namespace stepsim {

namespace {

Answer answer_of(const Question& question, Request& request, const OptionStructs& structs) {
  request.written = file_options(question.options).written;
  check_outputs(request);
  Answer answer = question.ask(request, structs.own);
  answer.outputs = request.outputs;
  return answer;
}

/// The words of a command line that give a value.
GivenOption given_option(const OptionRow& row, const OptionValue& value) {
  GivenOption given{row.long_name(), {}, {}};
  const std::string name = "--" + given.name;
  if (std::holds_alternative<bool>(value)) {
    given.words = {name};
    return given;
  }
  given.values = value_texts(value);
  for (const std::string& text : given.values) {
    if (row.arguments == 0 && (!row.rest || given.words.empty())) {
      given.words.push_back(name);
    }
    given.words.push_back(text);
  }
  return given;
}

/// The words of a command line that would say the same as the given scenario and axes.
void add_given(Request& request) {
  if (request.given_scenario) {
    const GivenScenario& scenario = *request.given_scenario;
    request.scenario.scenario = scenario.file;
    request.given.push_back({"scenario", {scenario.file}, {scenario.file}});
    for (const Setting& setting : scenario.set) {
      request.given.push_back({"set", {"--set", setting.text()}, {setting.text()}});
    }
  }
  for (const SweepAxis& axis : request.axes) {
    const std::string values =
        fmt::format("{}={}", axis.key, fmt::join(mapped(axis.values, &Setting::value_text), ","));
    request.given.push_back({"over", {"--over", values}, {values}});
  }
}

const OptionRow& row_of(const Question& question, const std::string& name, const Request& request) {
  const auto row = std::ranges::find(question.options, name, &OptionRow::long_name);
  if (row == question.options.end()) {
    request.fail(unknown_name("option", name, mapped(question.options, &OptionRow::long_name)));
  }
  return *row;
}

}  // namespace

std::vector<OptionRow> scenario_options() {
  std::vector<OptionRow> rows = {
      option("scenario", &ScenarioOptions::scenario, "SCENARIO: scenario file (TOML)")
          .positional(1),
      option("set",
             &ScenarioOptions::set,
             "KEY=VALUE: any key of the scenario, e.g. ddp.bucket_cap=\"50 MiB\"; may repeat"),
      option("seed", &ScenarioOptions::seed, "NUMBER: scenario.seed"),
      option("steps", &ScenarioOptions::steps, "NUMBER: scenario.steps"),
      option("profile", &ScenarioOptions::profile, "PROFILE: in place of the scenario's"),
      option("memory-limit",
             &ScenarioOptions::memory_limit,
             "SIZE: of this machine, for stepsim itself: refuse what is estimated to need more; "
             "without it, more than is free")};
  for (OptionRow& row : rows) {
    row.shared = true;
  }
  return option_table({rows, output_options()});
}

std::vector<OptionRow> output_options() {
  return {
      option("json", &Outputs::json, "FILE or -: write the result as JSON").written().for_most(),
      option("csv", &Outputs::csv, "FILE or -: write the result as CSV").written().for_most(),
      option("wide", &Outputs::wide, "all columns of tables, also beyond 80 characters").for_most(),
      option("quiet,q", &Outputs::quiet, "suppress terminal output").for_most()};
}

std::vector<OptionRow> page_options() {
  return {
      option("html", &Outputs::html, "FILE or -: write a page that shows the result").written()};
}

std::vector<OptionRow> point_options() {
  return {option("threads", &PointOptions::threads, "NUMBER: threads; 0 is one a core").from(0),
          option("resume",
                 &PointOptions::resume,
                 "FILE: keep each finished point there; a killed command goes on where it stopped"),
          option("shard",
                 &PointOptions::shard,
                 "SHARD: K/N, part K of N of the points, or auto; into the file of --resume, for "
                 "stepsim merge")};
}

OptionStructs option_structs(const Question& question, Request& request) {
  OptionStructs structs{question.make_own(), {}};
  structs.share(request.scenario);
  structs.share(request.outputs);
  structs.share(request.points);
  return structs;
}

Answer ask(const Question& question, const std::vector<std::string>& words, Request request) {
  request.command = "stepsim " + question.name;
  OptionStructs structs = option_structs(question, request);
  if (!read_words(words, question.usage, question.options, structs, request)) {
    return {};
  }
  return answer_of(question, request, structs);
}

Answer ask(const Question& question, const OptionValues& values, Request request) {
  request.command = "stepsim " + question.name;
  add_given(request);
  OptionStructs structs = option_structs(question, request);
  for (const auto& [name, value] : values) {
    const OptionRow& row = row_of(question, name, request);
    if (const std::string wrong = set_option(row, &structs, value); !wrong.empty()) {
      request.fail(wrong);
    }
    if (const bool* flag = std::get_if<bool>(&value); flag == nullptr || *flag) {
      request.given.push_back(given_option(row, value));
    }
  }
  keep_files_apart(request.command, request.given, file_options(question.options));
  return answer_of(question, request, structs);
}

}  // namespace stepsim
