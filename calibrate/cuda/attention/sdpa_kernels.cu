#include "calibrate/cuda/attention/sdpa_kernels.h"

#include "calibrate/cuda/attention/sdpa.h"
#include "calibrate/cuda/kernels/elements.cuh"

namespace stepsim::cuda {
namespace {

struct Strides {
  std::int64_t of[4];
};

__global__ void scale_offsets(std::int64_t* out,
                              const std::int32_t* offsets,
                              std::int64_t count,
                              Strides strides) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += step) {
    for (int array = 0; array < 4; ++array) {
      out[array * count + i] = offsets[i] * strides.of[array];
    }
  }
}

struct Arrays {
  TokenRows of[3];
};

__global__ void clear_rows(Arrays arrays,
                           const std::int32_t* lengths,
                           std::int64_t samples,
                           std::int64_t length) {
  constexpr int kPack = 8;  // Elements of a uint4.
  for (std::int64_t row = blockIdx.x; row < samples * length; row += gridDim.x) {
    if (row % length < lengths[row / length]) {
      continue;
    }
    for (const TokenRows& array : arrays.of) {
      auto* const packs = static_cast<uint4*>(array.data) + row * array.stride / kPack;
      for (std::int64_t i = threadIdx.x; i < array.width / kPack; i += blockDim.x) {
        packs[i] = uint4{0, 0, 0, 0};
      }
    }
  }
}

/// The mask of one sample after the other, in rows of `stride` elements.
template <typename T>
struct Mask {
  T* mask;
  ScoreMask visible;
  std::int64_t length;
  std::int64_t stride;

  template <int N>
  __device__ void at(std::int64_t i) const {
    constexpr float kHidden = -65504.0F;
    const std::int64_t row = i / stride;
    const std::int64_t query = row % length;
    const std::int64_t useful = visible.lengths[row / length];
    float values[N];
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const std::int64_t key = i % stride + k;
      const std::int64_t back = query - key;
      const bool in_past = !visible.causal || back >= 0;
      const bool near = visible.window == 0 || (back < visible.window && -back < visible.window);
      values[k] = key < useful && in_past && near ? 0.0F : kHidden;
    }
    store<N>(mask + i, values);
  }
};

}  // namespace

void padding_mask(const Stream& stream,
                  Array mask,
                  const ScoreMask& visible,
                  std::int64_t samples,
                  std::int64_t length) {
  with_type(mask.dtype, [&](auto type) {
    using T = typename decltype(type)::Type;
    constexpr int kN = kPack<T>;
    const Mask<T> body{data_of<T>(mask), visible, length, mask_stride(length)};
    launch_elements<kN>(stream, body, samples * length * body.stride, aligned(kN, body.mask));
  });
}

void element_offsets(const Stream& stream,
                     std::int64_t* out,
                     const std::int32_t* offsets,
                     std::int64_t count,
                     const std::array<std::int64_t, 4>& strides) {
  constexpr int kThreads = 256;
  launch(scale_offsets,
         (count + kThreads - 1) / kThreads,
         kThreads,
         stream,
         out,
         offsets,
         count,
         Strides{{strides[0], strides[1], strides[2], strides[3]}});
}

void clear_padding(const Stream& stream,
                   const std::array<TokenRows, 3>& arrays,
                   const std::int32_t* lengths,
                   std::int64_t samples,
                   std::int64_t length) {
  constexpr int kThreads = 128;
  launch(clear_rows,
         samples * length,
         kThreads,
         stream,
         Arrays{{arrays[0], arrays[1], arrays[2]}},
         lengths,
         samples,
         length);
}

}  // namespace stepsim::cuda
