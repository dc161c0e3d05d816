#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "calibrate/cuda/device/device.h"

namespace stepsim::cuda {

/// One fused attention problem of self-attention.
struct SdpaShape {
  Dtype dtype = Dtype::Bf16;  ///< Bf16 or F16.
  std::int64_t samples = 0;
  std::int64_t length = 0;  ///< Padded length; packed: the longest.
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  bool causal = false;
  std::int64_t window = 0;     ///< |query - key| < window, both sides unless causal; 0 = all.
  bool masked = false;         ///< Padded with useful lengths: keys past them are masked.
  bool biased = false;         ///< A mask that is a tensor is added to the scores.
  bool packed = false;         ///< Token after token without padding (varlen, cu_seqlens).
  std::int64_t q_stride = 0;   ///< Elements from a token of q to the next; likewise below.
  std::int64_t kv_stride = 0;  ///< The stride of k and v.
  std::int64_t o_stride = 0;   ///< The stride of o.
  /// The gradients dq, dk, dv, do have the strides of q, k, v, o.
  // NOLINTNEXTLINE(modernize-use-nullptr): clang-tidy 14 takes the 0 of the comparison for one.
  auto operator<=>(const SdpaShape&) const = default;
};

/// Device arrays that describe the sequences; null where the shape has none.
///
/// A mask that is a tensor is what PyTorch's scaled_dot_product_attention gets as attn_mask from
/// Hugging Face for a padded batch. It says all: a biased shape is neither masked nor causal and
/// has no window. Rows of padding attend like others, so that nothing there is zero.
struct SdpaSequences {
  const std::int32_t* lengths = nullptr;  ///< [samples] useful tokens; masked and packed.
  const std::int32_t* offsets = nullptr;  ///< [samples + 1] first token of each; packed.
  /// [samples][1][length][length] of the dtype, mask_stride(length) elements a row; biased.
  const void* mask = nullptr;
};

/// Elements of a mask's row in memory: its length rounded up to 16 bytes.
[[nodiscard]] constexpr std::int64_t mask_stride(std::int64_t length) {
  return (length + 7) / 8 * 8;
}

struct SdpaForward {
  ConstArray q, k, v;
  Array o;                      ///< Zero on padding, unless biased; likewise the gradients.
  float* statistics = nullptr;  ///< One a query row and head; samples * heads * length floats.
};
struct SdpaBackward {
  ConstArray q, k, v, o, d_o;
  const float* statistics = nullptr;
  Array dq, dk, dv;
};

/// The engines that serve a shape.
struct SdpaPlan {
  SdpaShape shape;
  std::int64_t forward_engine = 0;  ///< cuDNN's numbers.
  std::int64_t backward_engine = 0;
  std::int64_t workspace_bytes = 0;  ///< Of the larger of the two.
  double seconds = 0;                ///< That compiling took, on one core.
};

/// Fused attention by cuDNN on the current device; scale 1/sqrt(head_dim). Plans are built on first
/// use (see prepare()) and kept by shape. Beside cuDNN's kernels a packed call first
/// scales its offsets to elements, and a masked one clears the padding, which cuDNN leaves
/// undefined. One thread and one stream at a time.
class Sdpa {
 public:
  Sdpa();
  ~Sdpa();
  Sdpa(const Sdpa&) = delete;
  Sdpa& operator=(const Sdpa&) = delete;

  /// Builds what this shape needs. Raises EnvironmentFault: cuDNN has no kernel for it, naming the
  /// shape (head_dim that is no multiple of 8, fp32, …).
  void prepare(const SdpaShape& shape);
  /// Builds the plans of many shapes on all cores: about 0.6 s of a core for each. Returns [shape]
  /// why its plans could not be built; empty where they could.
  [[nodiscard]] std::vector<std::string> prepare_all(std::span<const SdpaShape> shapes);
  /// What has been built, by shape.
  [[nodiscard]] std::vector<SdpaPlan> plans() const;
  /// Gives the workspace back; it grows again with the next call.
  void release();
  void forward(const Stream& stream,
               const SdpaShape& shape,
               const SdpaSequences& sequences,
               const SdpaForward& arrays);
  void backward(const Stream& stream,
                const SdpaShape& shape,
                const SdpaSequences& sequences,
                const SdpaBackward& arrays);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// "9.19.0": the version of cuDNN that is loaded.
[[nodiscard]] std::string cudnn_version();

}  // namespace stepsim::cuda
