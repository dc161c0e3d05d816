#include "tests/published/validation.h"

#include <algorithm>
#include <stdexcept>

#include <fmt/core.h>

#include "costmodel/terminal/table.h"

namespace stepsim::published {

namespace {

std::string percent(double error) {
  return fmt::format("{:+.1f} %", 100 * error);
}

}  // namespace

double Validation::error(const Figure& figure, std::size_t variant) const {
  const double of = whole > 0 ? whole : figure.published;
  return (figure.predicted.at(variant).value() - figure.published) / of;
}

const Figure& Validation::figure(const std::string& name) const {
  const auto found = std::find_if(figures.begin(), figures.end(), [&](const Figure& candidate) {
    return candidate.name == name;
  });
  if (found == figures.end()) {
    throw std::out_of_range(title + " has no figure " + name);
  }
  return *found;
}

std::string text(const Validation& validation) {
  std::vector<std::string> header = {"figure", "published " + validation.unit};
  for (const std::string& variant : validation.variants) {
    header.push_back(variant);
    header.emplace_back("error");
  }
  if (!validation.interval_of.empty()) {
    header.push_back("90 % interval, " + validation.interval_of);
    header.emplace_back("holds it");
  }
  Table table(header);
  for (const Figure& figure : validation.figures) {
    std::vector<std::string> row = {figure.name,
                                    fmt::format("{:.{}f}", figure.published, validation.decimals)};
    for (std::size_t v = 0; v < validation.variants.size(); ++v) {
      const auto& value = figure.predicted.at(v);
      row.push_back(value ? fmt::format("{:.{}f}", *value, validation.decimals) : "");
      row.push_back(value ? percent(validation.error(figure, v)) : "");
    }
    if (!validation.interval_of.empty()) {
      const auto& interval = figure.interval;
      row.push_back(interval ? fmt::format("{:.{}f} to {:.{}f}",
                                           interval->first,
                                           validation.decimals,
                                           interval->second,
                                           validation.decimals)
                             : "");
      row.emplace_back(!interval ? "" : figure.holds() ? "yes" : "no");
    }
    table.add(std::move(row));
  }
  return fmt::format("## {}\n\nSource: {}.{}\n\n```\n{}```\n\nShows: {}\n\nCannot show: {}\n",
                     validation.title,
                     validation.source,
                     validation.whole > 0 ? fmt::format(" Errors in percent of {:.{}f} {}.",
                                                        validation.whole,
                                                        validation.decimals,
                                                        validation.unit)
                                          : "",
                     table.text(),
                     validation.proves,
                     validation.cannot);
}

namespace {

/// How many published figures lie in their 90 % intervals.
std::string coverage_text(const std::vector<Validation>& validations) {
  Table table({"figures", "with an interval", "in it"});
  std::size_t of = 0;
  std::size_t inside = 0;
  for (const Validation& validation : validations) {
    const auto has = [](const Figure& figure) { return figure.interval.has_value(); };
    const auto count = static_cast<std::size_t>(std::ranges::count_if(validation.figures, has));
    const auto held = static_cast<std::size_t>(
        std::ranges::count_if(validation.figures, [](const auto& f) { return f.holds(); }));
    if (count > 0) {
      table.add({validation.title, std::to_string(count), std::to_string(held)});
    }
    of += count;
    inside += held;
  }
  table.add({"all", std::to_string(of), std::to_string(inside)});
  return "## How many published steps lie in their 90 % intervals\n\n```\n" + table.text() +
         "```\n";
}

}  // namespace

std::string results(const std::string& data) {
  std::string all =
      "# Published measurements beside our predictions\n\n"
      "Written by `published_validations`; `test_published` holds the bounds and compares this "
      "file. "
      "Errors are in percent of the\npublished figure unless a table says otherwise. k is "
      "`interference.strength`: nobody published it for these runs, so the\ntables show what each "
      "value "
      "predicts. Nothing here was measured by this project.\n";
  const std::vector<Validation> validations = {ddp_readme(data),
                                               ddp_readme_small_buckets(data),
                                               ddp_readme_one_gpu(data),
                                               ddp_readme_compute(data),
                                               resnet_bucket_ready(data),
                                               resnet_scaling(),
                                               bert_large_scaling(),
                                               mlperf_bert(),
                                               lm3b_sync(),
                                               fun_asr(),
                                               three_samplers(),
                                               ddp_lab(data),
                                               vtrain(data),
                                               seed_lab(data)};
  for (const Validation& validation : validations) {
    all += "\n" + text(validation);
  }
  return all + "\n" + seed_lab_predictions(data) + "\n" + coverage_text(validations);
}

}  // namespace stepsim::published
