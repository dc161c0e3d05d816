#pragma once

#include <optional>
#include <string>
#include <vector>

#include "calibrate/fit/series.h"

namespace stepsim::bench {

/// Points of one operator of one model and degree of sharding.
struct MlpSeries {
  std::string model;
  int sharding = 1;
  std::string name;
  Series series;  ///< One batch of one sample a point; by tokens.
};

/// One causal attention of `chunk` new tokens over `cached` earlier ones.
struct PrefillRow {
  double chunk = 0;
  double cached = 0;
  double seconds = 0;
};

struct AllReduceRow {
  int ranks = 0;
  std::int64_t bytes = 0;
  double seconds = 0;
};

/// One matrix product of a training step, b times m x k times k x n.
struct LayerRow {
  std::string run;  ///< Model, sequence and batch.
  std::string kind;
  double b = 0;
  double m = 0;
  double n = 0;
  double k = 0;
  double forward = 0;   ///< Seconds.
  double backward = 0;  ///< Seconds.
};

/// A reference error, in percent.
struct Bar {
  std::string file;
  std::string group;
  std::string split;
  std::string form;
  double mape = 0;
};

/// The file of the folder whose name ends with `ending`; several are an InputError.
[[nodiscard]] std::optional<std::string> find_table(const std::string& folder,
                                                    const std::string& ending);

/// Readers of the tables that data/kernels/INDEX.md describes. Raise InputError with the place.
[[nodiscard]] std::vector<MlpSeries> read_mlp(const std::string& path);
[[nodiscard]] std::vector<PrefillRow> read_prefill(const std::string& path);
[[nodiscard]] std::vector<AllReduceRow> read_all_reduce(const std::string& path);
[[nodiscard]] std::vector<LayerRow> read_layers(const std::string& path);
/// Empty where the folder has no bars.csv.
[[nodiscard]] std::vector<Bar> read_bars(const std::string& folder);

}  // namespace stepsim::bench
