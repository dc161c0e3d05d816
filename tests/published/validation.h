#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace stepsim::published {

/// One published figure and what is predicted for it.
struct Figure {
  std::string name;
  double published = 0;
  std::vector<std::optional<double>> predicted;  ///< [variant] absent: nothing can be said.
  std::optional<std::pair<double, double>> interval = {};  ///< 90 %, of Validation::interval_of.

  /// Whether the interval, if there is one, holds the published figure.
  [[nodiscard]] bool holds() const {
    return interval && interval->first <= published && published <= interval->second;
  }
};

/// A set of figures of one source, with what agreement would and would not show.
struct Validation {
  std::string title;
  std::string source;
  std::string unit;
  std::vector<std::string> variants;  ///< What is assumed where the source leaves it open.
  std::vector<Figure> figures;
  std::string proves;
  std::string cannot;
  std::string interval_of = {};  ///< The variant whose intervals the figures have, if any.
  int decimals = 1;
  double whole = 0;  ///< What errors are fractions of; 0: each of its published figure.

  /// (predicted - published) / whole.
  [[nodiscard]] double error(const Figure& figure, std::size_t variant) const;
  [[nodiscard]] const Figure& figure(const std::string& name) const;
};

/// A heading, a table with the error of each prediction in percent, and the two sentences.
[[nodiscard]] std::string text(const Validation& validation);

// The sets. `data`: a folder as $STEPSIM_DATA; the files that each reads are named with it. All
// raise InputError when a file cannot be read.

/// traces/pytorch_ddp_readme/bucket25.csv: growth of the step from one GPU to 2, 4, 8 and 16.
[[nodiscard]] Validation ddp_readme(const std::string& data);
/// The same and bucket1.csv: what buckets of 1 MiB add to the step.
[[nodiscard]] Validation ddp_readme_small_buckets(const std::string& data);
/// bucket25.csv: what DDP adds on one GPU.
[[nodiscard]] Validation ddp_readme_one_gpu(const std::string& data);
/// bucket25.csv: the step without DDP, from what the layers have to do.
[[nodiscard]] Validation ddp_readme_compute(const std::string& data);
/// traces/resnet50_1xV100/bucket_ready.csv
[[nodiscard]] Validation resnet_bucket_ready(const std::string& data);
/// seed_lab/ddp_lab.csv
[[nodiscard]] Validation ddp_lab(const std::string& data);
/// seed_lab/measured.csv: each of its two cases from the other.
[[nodiscard]] Validation seed_lab(const std::string& data);
/// kernels/vtrain_a100_dp.csv
[[nodiscard]] Validation vtrain(const std::string& data);

// Figures that stand in their sources only; no file is read but our scenarios.

[[nodiscard]] Validation lm3b_sync();
[[nodiscard]] Validation resnet_scaling();
[[nodiscard]] Validation bert_large_scaling();
[[nodiscard]] Validation mlperf_bert();
[[nodiscard]] Validation fun_asr();
[[nodiscard]] Validation three_samplers();

/// seed_lab/measured.csv: the lab's other two cases as text, which no measurement stands beside.
[[nodiscard]] std::string seed_lab_predictions(const std::string& data);

/// The whole results file: all of them.
[[nodiscard]] std::string results(const std::string& data);

}  // namespace stepsim::published
