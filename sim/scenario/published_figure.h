#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "costmodel/base/units.h"
#include "costmodel/network/communication_hook.h"

namespace stepsim {

/// Figures that articles publish and arithmetic can check.
enum class FigureKind {
  RingVolume,        ///< Bytes that a rank sends in one ring all-reduce of all gradients.
  AllReduceTime,     ///< RingVolume over a bandwidth, without latency.
  StateMemory,       ///< Bytes of parameters, gradients and optimizer on a rank.
  CompressedVolume,  ///< Bytes that a rank sends with a communication hook.
  BucketCount,       ///< Buckets DDP makes after the rebuild.
  ComputeTime,       ///< Forward and backward operations over a speed.
  StepTokens,        ///< Tokens of a step on all ranks.
  AttentionScores,   ///< Scores of full attention over equal sequences, one head.
  AttentionSaving    ///< Scores of full rows over those of the documents they are packed with.
};

/// What a figure or condition is measured in: bytes, seconds, buckets, tokens or scores (also in Ki
/// and Mi), operations per second.
enum class Dimension { Size, Time, Number, Count, Speed };

/// A number as it stands in print: "548 GB", "~12 GB", "0.31 s", "28000", "64 Mi". Units: B, kB,
/// MB, GB, TB, KiB, MiB, GiB, TiB; ns, us, ms, s; Ki, Mi; GFLOP/s, TFLOP/s, PFLOP/s.
struct Quantity {
  std::string text;
  double value = 0;      ///< In the dimension's base unit.
  double unit_size = 1;  ///< The size of the written unit, in base units.
  std::string unit;
  int decimals = 0;
  /// What rounding may hide: half of the last digit; after "~" half of the second significant digit
  /// where that is more.
  double half_unit = 0;
};
/// Raises InputError (message only; the caller knows the place): no number, an unknown unit.
[[nodiscard]] Quantity parse_quantity(std::string_view text, Dimension dimension);
/// `value` (base units) in the unit of `like`, with two decimals more than that has.
[[nodiscard]] std::string format_like(const Quantity& like, double value);

/// A kind of figure: its name and keys in a scenario, and how it is computed, in words.
struct FigureInfo {
  FigureKind kind = FigureKind::RingVolume;
  std::string name;  ///< "ring_volume"
  Dimension dimension = Dimension::Size;
  std::vector<std::string> keys;      ///< Conditions it takes; those left out are the scenario's.
  std::vector<std::string> required;  ///< Conditions that the scenario does not have.
  std::string formula;
};
[[nodiscard]] const std::vector<FigureInfo>& figure_table();
[[nodiscard]] const FigureInfo& figure_info(FigureKind kind);
/// Raises InputError for an unknown name, with the nearest known one.
[[nodiscard]] const FigureInfo& figure_info(std::string_view name);

/// One published figure with its conditions, those of the scenario filled in.
struct PublishedFigure {
  FigureKind kind = FigureKind::RingVolume;
  Quantity value;
  std::string source;
  std::string note;  ///< Why it is wrong, where it is.

  int ranks = 1;
  std::int64_t parameters = 0;
  double bytes_per_s = 0;
  int zero_stage = 0;
  double optimizer_bytes = 0;  ///< A parameter, master weights included.
  CommunicationHook hook = CommunicationHook::None;
  HookOptions hook_options;  ///< Past its start.
  Bytes bucket_cap;
  std::int64_t samples = 0;
  std::int64_t length = 0;
  std::int64_t row_length = 0;
  int accumulation_steps = 1;
  Quantity speed;  ///< Operations per second.
};

}  // namespace stepsim
