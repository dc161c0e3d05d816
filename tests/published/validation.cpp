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
  Table table(header);
  for (const Figure& figure : validation.figures) {
    std::vector<std::string> row = {figure.name,
                                    fmt::format("{:.{}f}", figure.published, validation.decimals)};
    for (std::size_t v = 0; v < validation.variants.size(); ++v) {
      const auto& value = figure.predicted.at(v);
      row.push_back(value ? fmt::format("{:.{}f}", *value, validation.decimals) : "");
      row.push_back(value ? percent(validation.error(figure, v)) : "");
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

std::string results(const std::string& data) {
  std::string all =
      "# Published measurements beside our predictions\n\n"
      "Written by `published_validations`; `test_published` holds the bounds and compares this "
      "file. "
      "Errors are in percent of the\npublished figure unless a table says otherwise. k is "
      "`interference.strength`: nobody published it for these runs, so the\ntables show what each "
      "value "
      "predicts. Nothing here was measured by this project.\n";
  for (const Validation& validation : {ddp_readme(data),
                                       ddp_readme_small_buckets(data),
                                       ddp_readme_one_gpu(data),
                                       ddp_readme_compute(data),
                                       resnet_bucket_ready(data),
                                       resnet_scaling(),
                                       bert_large_scaling(),
                                       mlperf_bert(),
                                       lm3b_sync(),
                                       ddp_lab(data),
                                       vtrain(data),
                                       seed_lab(data)}) {
    all += "\n" + text(validation);
  }
  return all + "\n" + seed_lab_predictions(data);
}

}  // namespace stepsim::published
