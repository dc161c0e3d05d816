#pragma once

#include <cstdint>

namespace stepsim {

/// What limits a kernel, which decides how a collective on the same device slows it.
enum class Bound : std::uint8_t {
  Unaffected,  ///< A collective takes nothing that this work needs.
  Compute,     ///< Multiprocessors limit it, and it slows by whole waves of thread blocks.
  Memory       ///< Memory bandwidth limits it, and it slows by the share a collective takes.
};

/// How compute on a device and a collective whose kernel is resident there slow each other.
///
/// While a collective is resident, compute takes (1 + compute) times as long, and more by waves of
/// thread blocks or by memory bandwidth (compute_slowdown()). A transfer takes (1 + transfer) times
/// as long while any of its ranks computes. With compute = transfer = k and nothing else, a
/// backward B that overlaps a transfer C takes max(B, C) + k min(B, C), since each second of the
/// shorter one costs 1 + k seconds of both. With all members zero nothing slows anything.
///
/// Sources: SM share and waves, NVIDIA/nccl#689 and an H100 report of a 132-block GEMM that doubles
/// beside 24 NCCL blocks; bounds of 5 to 40 % from arXiv 2507.03114.
struct Interference {
  double compute = 0;         ///< Extra time of any compute, as a fraction.
  double transfer = 0;        ///< Extra time of a transfer beside compute, as a fraction.
  int multiprocessors = 0;    ///< SMs of the device; 0: waves are not modelled.
  int max_channels = 16;      ///< The most SMs that one collective holds (NCCL_MAX_CTAS).
  double memory_share = 0;    ///< The share of memory bandwidth that collectives take, 0 .. 1.
  double limit = 0.4;         ///< The most extra time by waves and memory together, as a fraction.
  bool while_waiting = true;  ///< True: a collective slows compute even while it waits for ranks.

  [[nodiscard]] bool active() const {
    return compute > 0 || transfer > 0 || multiprocessors > 0 || memory_share > 0;
  }
  bool operator==(const Interference&) const = default;
};

/// Returns the time of compute beside resident collectives over its time alone, at least 1.
///
/// The factor of compute-bound work is ceil(blocks / (SMs - channels)) / ceil(blocks / SMs), that
/// of memory-bound work 1 / (1 - memory_share).
///
/// Args:
///     blocks: Thread blocks of compute-bound work, of which a multiprocessor runs one at a time.
///     0:
///         unknown; the work is taken to fill one wave.
///     channels: Multiprocessors that the resident collectives hold.
[[nodiscard]] double compute_slowdown(const Interference& interference,
                                      Bound bound,
                                      int blocks,
                                      int channels);

}  // namespace stepsim
