#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tests/bench/kernel_tables.h"

namespace stepsim::bench {

/// A sum over [1, flops, bytes] of the forward product, with more of what could set its time.
struct LayerForm {
  std::string name;
  /// The work of whole waves of tiles of 128 x 128: of the product, or of each of its gradients.
  bool waves = false;
  bool forward = false;  ///< The measured forward time.
};

/// This says which pass a time is of.
enum class LayerPass { Forward, Backward };

[[nodiscard]] double seconds_of(const LayerRow& row, LayerPass pass);

/// The forms of a pass, simplest first. Only a backward can know its forward.
[[nodiscard]] std::vector<LayerForm> layer_forms(LayerPass pass);

/// A form fitted to rows by relative NNLS.
class LayerFit {
 public:
  LayerFit(LayerForm form, LayerPass pass, std::int64_t processors, std::span<const LayerRow> rows);
  [[nodiscard]] double seconds(const LayerRow& row) const;

 private:
  LayerForm form_;
  LayerPass pass_;
  std::int64_t processors_;
  std::vector<double> coefficients_;
};

/// What predicts whole runs left out of the rows best: waves where they save a quarter of the error
/// of all other forms, else the mean, of logarithms, of those forms whose error is within a quarter
/// of the least. Rows of one run get the simplest form.
class MeanLayerFit {
 public:
  MeanLayerFit(LayerPass pass, std::int64_t processors, std::span<const LayerRow> rows);
  [[nodiscard]] double seconds(const LayerRow& row) const;
  [[nodiscard]] std::string names() const;

 private:
  std::vector<LayerFit> fits_;
  std::vector<std::string> names_;
};

/// The number of processors, even, from 16 to 256, whose waves explain all these rows best: those
/// of linear layers and of batched products, forward and backward alike.
[[nodiscard]] std::int64_t layer_processors(std::span<const LayerRow> rows);

/// Rows that a run, or a model with `models`, leaves for fitting, and those it holds.
struct LayerPart {
  std::vector<LayerRow> train;
  std::vector<LayerRow> test;
};
[[nodiscard]] std::vector<LayerPart> layer_parts(std::span<const LayerRow> rows,
                                                 bool models = false);

/// The rows of the table that are scored: batched products, and linear layers of 64 rows or more,
/// that take 50 us or more.
[[nodiscard]] std::vector<LayerRow> scored_layers(const std::string& path);

/// Rows of this kind.
[[nodiscard]] std::vector<LayerRow> of_kind(std::span<const LayerRow> rows,
                                            const std::string& kind);

}  // namespace stepsim::bench
