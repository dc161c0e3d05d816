#include "tests/bench/layer_forms.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include <fmt/core.h>
#include <fmt/ranges.h>

#include "calibrate/fit/holdout.h"
#include "calibrate/fit/nnls.h"

namespace stepsim::bench {
namespace {

constexpr double kElementBytes = 4;  ///< Of an element.
constexpr double kLayerTile = 128;
constexpr double kNearlyBest = 1.25;
constexpr double kMuchBetter = 0.75;
/// Errors far below this are noise and do not tell numbers of processors apart.
constexpr double kRepeatability = 0.005;

/// The multiplications of b products rows x columns over `depth`, in whole waves of tiles.
double wave_work(double b, double rows, double columns, double depth, double processors) {
  const double tiles = b * std::ceil(rows / kLayerTile) * std::ceil(columns / kLayerTile);
  return std::ceil(tiles / processors) * processors * kLayerTile * kLayerTile * depth;
}

std::vector<double> layer_features(const LayerForm& form,
                                   LayerPass pass,
                                   std::int64_t processors,
                                   const LayerRow& row) {
  const auto& [run, kind, b, m, n, k, forward, backward] = row;
  std::vector<double> features = {1, 2 * b * m * n * k, kElementBytes * b * (n * k + m * (n + k))};
  const auto count = static_cast<double>(processors);
  if (form.waves && pass == LayerPass::Forward) {
    features.push_back(wave_work(b, m, n, k, count));
  } else if (form.waves) {
    features.push_back(wave_work(b, m, k, n, count));  // Of the input.
    features.push_back(wave_work(b, n, k, m, count));  // Of the weights.
  }
  if (form.forward) {
    features.push_back(forward);
  }
  return features;
}

double run_error(const LayerForm& form,
                 LayerPass pass,
                 std::int64_t processors,
                 std::span<const LayerPart> parts) {
  ErrorSum sum;
  for (const LayerPart& part : parts) {
    const LayerFit fit(form, pass, processors, part.train);
    for (const LayerRow& row : part.test) {
      sum.add(fit.seconds(row), seconds_of(row, pass));
    }
  }
  return sum.mean().value_or(0);
}

/// Over both kinds and passes, the sum of the logarithms of how far waves leave these rows
/// unexplained.
double wave_misfit(std::span<const LayerRow> rows, std::int64_t processors) {
  double sum = 0;
  for (const char* kind : {"linear", "bmm"}) {
    const std::vector<LayerRow> some = of_kind(rows, kind);
    for (const LayerPass pass : {LayerPass::Forward, LayerPass::Backward}) {
      const LayerPart all{some, some};
      const double error = run_error({"", true}, pass, processors, std::span(&all, 1));
      sum += std::log(error + kRepeatability);
    }
  }
  return sum;
}

}  // namespace

double seconds_of(const LayerRow& row, LayerPass pass) {
  return pass == LayerPass::Forward ? row.forward : row.backward;
}

std::vector<LayerForm> layer_forms(LayerPass pass) {
  std::vector<LayerForm> forms = {{"roofline"}, {"roofline + waves", true}};
  if (pass == LayerPass::Backward) {
    forms.push_back({"roofline + forward", false, true});
  }
  return forms;
}

LayerFit::LayerFit(LayerForm form,
                   LayerPass pass,
                   std::int64_t processors,
                   std::span<const LayerRow> rows)
    : form_(std::move(form)), pass_(pass), processors_(processors) {
  std::vector<std::vector<double>> matrix;
  std::vector<double> seconds;
  for (const LayerRow& row : rows) {
    matrix.push_back(layer_features(form_, pass_, processors_, row));
    seconds.push_back(seconds_of(row, pass_));
  }
  coefficients_ = relative_nnls(matrix, seconds);
}

double LayerFit::seconds(const LayerRow& row) const {
  return dot(coefficients_, layer_features(form_, pass_, processors_, row));
}

MeanLayerFit::MeanLayerFit(LayerPass pass,
                           std::int64_t processors,
                           std::span<const LayerRow> rows) {
  const std::vector<LayerForm> forms = layer_forms(pass);
  const std::vector<LayerPart> parts = layer_parts(rows);
  std::vector<double> errors = {0};
  if (parts.size() > 1) {
    errors.clear();
    for (const LayerForm& form : forms) {
      errors.push_back(run_error(form, pass, processors, parts));
    }
  }
  // Waves have a number of processors to be found with the rows: they must earn it.
  double least = std::numeric_limits<double>::infinity();
  double least_of_waves = least;
  for (std::size_t i = 0; i < errors.size(); ++i) {
    double& error = forms[i].waves ? least_of_waves : least;
    error = std::min(error, errors[i]);
  }
  const bool waves = least_of_waves < kMuchBetter * least;
  for (std::size_t i = 0; i < errors.size(); ++i) {
    if (forms[i].waves == waves && (waves || errors[i] <= kNearlyBest * least)) {
      fits_.emplace_back(forms[i], pass, processors, rows);
      names_.push_back(forms[i].name);
    }
  }
}

double MeanLayerFit::seconds(const LayerRow& row) const {
  double sum = 0;
  for (const LayerFit& fit : fits_) {
    sum += std::log(fit.seconds(row));
  }
  return std::exp(sum / static_cast<double>(fits_.size()));
}

std::string MeanLayerFit::names() const {
  return fmt::format("{}", fmt::join(names_, ", "));
}

std::int64_t layer_processors(std::span<const LayerRow> rows) {
  constexpr std::int64_t kFewest = 16;
  constexpr std::int64_t kMost = 256;
  double least = std::numeric_limits<double>::infinity();
  std::int64_t best = kFewest;
  for (std::int64_t processors = kFewest; processors <= kMost; processors += 2) {
    const double misfit = wave_misfit(rows, processors);
    if (misfit < least) {
      least = misfit;
      best = processors;
    }
  }
  return best;
}

std::vector<LayerPart> layer_parts(std::span<const LayerRow> rows, bool models) {
  const auto name_of = [models](const LayerRow& row) {
    return models ? row.run.substr(0, row.run.find('/')) : row.run;
  };
  std::map<std::string, LayerPart> parts;
  for (const LayerRow& row : rows) {
    parts[name_of(row)];
  }
  std::vector<LayerPart> list;
  for (auto& [name, part] : parts) {
    for (const LayerRow& row : rows) {
      (name_of(row) == name ? part.test : part.train).push_back(row);
    }
    list.push_back(std::move(part));
  }
  return list;
}

std::vector<LayerRow> scored_layers(const std::string& path) {
  constexpr double kFewestRows = 64;
  constexpr double kShortest = 0.05e-3;
  std::vector<LayerRow> rows = read_layers(path);
  std::erase_if(rows, [](const LayerRow& row) {
    return row.forward < kShortest || (row.kind != "bmm" && row.m < kFewestRows);
  });
  return rows;
}

std::vector<LayerRow> of_kind(std::span<const LayerRow> rows, const std::string& kind) {
  std::vector<LayerRow> some;
  std::ranges::copy_if(
      rows, std::back_inserter(some), [&](const LayerRow& row) { return row.kind == kind; });
  return some;
}

}  // namespace stepsim::bench
