#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "costmodel/base/index.h"
#include "costmodel/base/mapped.h"
#include "costmodel/model/batch_shape.h"
#include "sim/batching/algorithms/piece.h"
#include "sim/batching/sampler.h"

namespace stepsim {

/// The nanoseconds that one rank computes on a batch of this shape.
using StepCost = std::function<std::int64_t(const BatchShape&)>;

/// Whether a policy plans by the time that a batch takes to compute.
enum class StepCostUse {
  Never,
  IfKnown,  ///< It plans by padded tokens where no costs are known.
  Always,   ///< The scenario asks for it, so unknown costs are bad input.
};

/// What a policy sees: the whole data set, and how its samples are ordered and split.
struct PolicyInput {
  std::span<const std::int64_t> lengths;  ///< [sample]
  std::span<const std::int64_t> targets;  ///< [sample] second lengths; empty: there are none.
  SamplerSpec sampler;
  int ranks = 1;
  int epoch = 0;
  StepCost step_cost;  ///< Empty where nobody knows it; only policies that plan by time need it.
  double shape_seconds = 0;  ///< What a rank pays when it first meets a shape; 0: nothing is known.
};

/// [batch] sample ids.
using Batches = std::vector<std::vector<std::int64_t>>;

/// [rank][batch] sample ids of one epoch.
using EpochBatches = std::vector<Batches>;

/// The batches that a policy forms for one epoch.
struct EpochPlan {
  /// [rank][batch] ids of samples. In an epoch with pieces these are indices into `pieces`.
  EpochBatches batches;
  /// The parts of samples, where the policy cuts samples. When it is empty all samples are whole.
  std::vector<Piece> pieces;
  /// The ascending lengths to the next of which batches are padded, the same in every epoch, where
  /// the policy chooses them by the data. Empty: BatchingPolicy::padded_length() says it.
  std::vector<std::int64_t> pad_to_lengths = {};

  /// The sample, or part of one, that an id in `batches` stands for. `lengths`: [sample].
  [[nodiscard]] Piece piece_of(std::int64_t id, std::span<const std::int64_t> lengths) const {
    return pieces.empty() ? Piece{id, 0, lengths[at(id)]} : pieces[at(id)];
  }

  /// The sample that an id in `batches` is of.
  [[nodiscard]] std::int64_t sample_of(std::int64_t id) const {
    return pieces.empty() ? id : pieces[at(id)].sample;
  }

  /// The samples and parts of samples of one batch. `lengths`: [sample].
  [[nodiscard]] std::vector<Piece> pieces_of(std::span<const std::int64_t> batch,
                                             std::span<const std::int64_t> lengths) const {
    return mapped(batch, [&](std::int64_t id) { return piece_of(id, lengths); });
  }

  bool operator==(const EpochPlan&) const = default;
};

}  // namespace stepsim
