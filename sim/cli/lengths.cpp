#include "sim/batching/lengths.h"

#include <algorithm>
#include <utility>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "costmodel/io/json_file.h"
#include "costmodel/terminal/table.h"
#include "sim/ask/question.h"
#include "sim/batching/histogram.h"
#include "sim/batching/length_summary.h"
#include "sim/predict/batch_plan.h"

namespace stepsim {

namespace {

struct LengthsOptions {
  std::string policy;
  std::string file;
  std::string field = "length";
};

constexpr const char* kLengthsUsage =
    "usage: stepsim lengths SCENARIO [--policy NAME] [options]\n"
    "       stepsim lengths --file FILE [--field NAME] [options]\n\n"
    "Describes the sample lengths: percentiles, tail, padding of random batches.\n"
    "FILE: one length a line, .jsonl with a field, or a histogram or plan of Stepsim.\n\n"
    "examples:\n"
    "  stepsim lengths scenarios/sst2_distilbert.toml\n"
    "  stepsim lengths --file scenarios/lengths/gsm8k_train_qa.json\n"
    "  stepsim lengths --file tokens.jsonl --field input_ids\n";

/// The kind of a file by its name, and for JSONL by its first line.
LengthSource source_of(const std::string& file, const std::string& field) {
  LengthSource source;
  source.file = file;
  source.field = field;
  source.kind = LengthSource::Kind::File;
  if (file.ends_with(".json")) {
    source.kind = LengthSource::Kind::Histogram;
  } else if (file.ends_with(".jsonl")) {
    const std::string text = read_text(file);
    const bool plan = text.substr(0, text.find('\n')).find("stepsim-plan/") != std::string::npos;
    source.kind = plan ? LengthSource::Kind::Plan : LengthSource::Kind::Jsonl;
  }
  return source;
}

std::string summary_text(const std::string& title, const LengthSummary& s, const Screen& screen) {
  std::string text = title + "\n\n";
  text += fmt::format("samples      {}\n", s.samples);
  text += fmt::format("tokens       {}\n", s.tokens);
  text += fmt::format("mean         {:.1f}, standard deviation {:.1f}\n", s.mean, s.std);
  text += fmt::format("shortest     {}, longest {}\n", s.shortest, s.longest);
  text += fmt::format("tail         the longest 1 % of the samples hold {:.1f} % of the tokens\n",
                      100 * s.longest_percent_tokens);
  text += fmt::format("padding      {:.1f} % in batches of 8 samples as they come\n\n",
                      100 * s.padding_in_random_batches);
  std::vector<std::string> names;
  std::vector<std::string> values;
  for (const auto& [percent, length] : s.percentiles) {
    names.push_back(fmt::format("p{:g}", percent));
    values.push_back(std::to_string(length));
  }
  Table percentiles(names);
  percentiles.add(values);
  text += percentiles.text(screen) + "\n";
  const std::int64_t most = max_of(s.bars, &LengthBar::samples, std::int64_t{1});
  Table bars({"length", "samples", "of the samples", "of the tokens"});
  std::vector<double> shares;
  std::vector<std::string> plain;
  for (const LengthBar& bar : s.bars) {
    const auto width = static_cast<std::size_t>(40 * bar.samples / most);
    bars.add(
        {bar.low == bar.high ? std::to_string(bar.low) : fmt::format("{}..{}", bar.low, bar.high),
         std::to_string(bar.samples),
         fmt::format("{:.1f} %",
                     100 * static_cast<double>(bar.samples) / static_cast<double>(s.samples)),
         fmt::format("{:.1f} %", 100 * bar.token_share)});
    shares.push_back(static_cast<double>(bar.samples) / static_cast<double>(most));
    plain.emplace_back(width, '#');
  }
  bars.add_bars("", std::move(shares), std::move(plain));
  return text + bars.text(screen);
}

Json summary_json(const LengthSummary& s) {
  Json percentiles = Json::object();
  for (const auto& [percent, length] : s.percentiles) {
    percentiles[fmt::format("p{:g}", percent)] = length;
  }
  Json bars = mapped(s.bars, [](const LengthBar& bar) -> Json {
    return {{"low", bar.low},
            {"high", bar.high},
            {"samples", bar.samples},
            {"token_share", bar.token_share}};
  });
  return {{"format", "stepsim-length-summary/1"},
          {"samples", s.samples},
          {"tokens", s.tokens},
          {"mean", s.mean},
          {"std", s.std},
          {"shortest", s.shortest},
          {"longest", s.longest},
          {"longest_percent_tokens", s.longest_percent_tokens},
          {"padding_in_batches_of_8", s.padding_in_random_batches},
          {"percentiles", std::move(percentiles)},
          {"bars", std::move(bars)}};
}

std::string bars_csv(const LengthSummary& summary) {
  std::string csv = "low,high,samples,token_share\n";
  for (const LengthBar& bar : summary.bars) {
    csv += fmt::format("{},{},{},{}\n", bar.low, bar.high, bar.samples, bar.token_share);
  }
  return csv;
}

Answer ask_lengths(const Request& request, const LengthsOptions& options) {
  if (options.file.empty() == request.scenario.scenario.empty()) {
    request.fail("give a scenario or --file FILE, one of them");
  }
  std::vector<std::int64_t> lengths;
  std::string title = options.file;
  if (!options.file.empty()) {
    lengths = generate_lengths(source_of(options.file, options.field), 0);
  } else {
    const Scenario scenario = read_asked(request);
    title = "data of scenario " + scenario.name;
    lengths = data_lengths(scenario, find_policy(scenario, options.policy));
  }
  const LengthSummary summary = summarise_lengths(std::move(lengths));
  Answer answer;
  answer.text = [=](const Screen& screen) { return summary_text(title, summary, screen); };
  answer.json = [=] { return summary_json(summary); };
  answer.csv = [=] { return bars_csv(summary); };
  return answer;
}

}  // namespace

Question lengths_question() {
  return question(
      "lengths",
      "what the sample lengths look like",
      kLengthsUsage,
      option_table({scenario_options(),
                    {option("policy", &LengthsOptions::policy, "POLICY: with data of its own"),
                     option("file", &LengthsOptions::file, "FILE: lengths, in place of a scenario"),
                     option("field", &LengthsOptions::field, "NAME: field of a .jsonl file")}}),
      ask_lengths);
}

}  // namespace stepsim
