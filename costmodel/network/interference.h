#pragma once

#include <cstdint>

namespace stepsim {

/// What limits a piece of device work, and so how a resident collective slows it.
enum class Bound : std::uint8_t {
  Unaffected,  ///< Nothing on the device that a collective takes away.
  Compute,     ///< Thread blocks over multiprocessors: slows by whole waves.
  Memory       ///< Memory bandwidth: slows by the share that the collective takes.
};

/// How a collective that is resident on a device and compute on that device slow each other.
///
/// Compute slows by (1 + compute) x waves or x memory while a collective is resident, the transfer
/// by (1 + transfer) while any of its ranks computes. With compute = transfer = k and nothing else,
/// a backward B over a transfer C takes max(B, C) + k min(B, C): each second of the shorter one
/// costs 1 + k seconds of both. All zero: the ideal model exactly.
///
/// Sources: SM share and waves, NVIDIA/nccl#689 and an H100 report of a 132-block GEMM that doubles
/// beside 24 NCCL blocks; bounds of 5 to 40 % from arXiv 2507.03114.
struct Interference {
  double compute = 0;         ///< Extra time of any compute, as a fraction.
  double transfer = 0;        ///< Extra time of a transfer beside compute, as a fraction.
  int multiprocessors = 0;    ///< SMs of the device; 0 = no waves.
  int max_channels = 16;      ///< SMs that one collective holds at most (NCCL_MAX_CTAS).
  double memory_share = 0;    ///< Memory bandwidth that resident collectives take, 0 .. 1.
  double limit = 0.4;         ///< Waves and memory together slow by at most this much.
  bool while_waiting = true;  ///< A collective that waits for other ranks slows compute as well.

  [[nodiscard]] bool active() const {
    return compute > 0 || transfer > 0 || multiprocessors > 0 || memory_share > 0;
  }
  bool operator==(const Interference&) const = default;
};

/// Time of compute beside resident collectives over its time alone, at least 1.
///
/// `blocks`: thread blocks of compute-bound work, one per multiprocessor at a time (0: unknown, as
/// if it filled one wave). `channels`: multiprocessors that the resident collectives hold.
/// Compute-bound: ceil(blocks / (SMs - channels)) / ceil(blocks / SMs). Memory-bound:
/// 1 / (1 - memory_share).
[[nodiscard]] double compute_slowdown(const Interference& interference,
                                      Bound bound,
                                      int blocks,
                                      int channels);

}  // namespace stepsim
