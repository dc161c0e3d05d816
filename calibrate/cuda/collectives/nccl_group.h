#pragma once

#include <cstdint>
#include <string>

#include "calibrate/cuda/device/device.h"

namespace stepsim::cuda {

/// A name for a group that is about to form, made by rank 0 and given to all others: one line of
/// text.
[[nodiscard]] std::string nccl_unique_id();

/// An NCCL communicator over the current device of each rank's process. Operations are put into a
/// stream, in the same order on every rank; with one rank they move nothing.
///
/// A single rank without a unique id starts no NCCL, which takes a second and a network interface:
/// its operations do nothing.
class NcclGroup {
 public:
  /// Blocks until all ranks are here. Raises EnvironmentFault with NCCL's own reason: two ranks on
  /// one device, …
  NcclGroup(int rank, int ranks, const std::string& unique_id);
  /// A second group of the same ranks, made by all of them at once, whose collectives take
  /// `channels` thread blocks (NCCL's CTAs). NCCL takes fewer for small messages.
  NcclGroup(const NcclGroup& parent, int channels);
  ~NcclGroup();
  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;

  [[nodiscard]] int ranks() const { return ranks_; }

  /// Sum over ranks, in place.
  void all_reduce(const Stream& stream, Array data, std::int64_t elements);
  /// `data` holds `elements` (a multiple of the ranks); each rank's share of the sum lies at its
  /// place in it afterwards.
  void reduce_scatter(const Stream& stream, Array data, std::int64_t elements);
  /// The inverse: from each rank's share at its place to all of `data` on all ranks.
  void all_gather(const Stream& stream, Array data, std::int64_t elements);

 private:
  int rank_;
  int ranks_;
  void* communicator_ = nullptr;  ///< Null: no NCCL.
};

/// "2.28.9": the version of NCCL that is loaded.
[[nodiscard]] std::string nccl_version();

}  // namespace stepsim::cuda
