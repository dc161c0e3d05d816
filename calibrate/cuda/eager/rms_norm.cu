#include "calibrate/cuda/eager/eager.h"
#include "calibrate/cuda/eager/map.cuh"
#include "calibrate/cuda/kernels/team.cuh"

namespace stepsim::cuda {
namespace {

constexpr float kEpsilonOfRmsNorm = 1e-5F;

struct InverseRoot {
  __device__ float operator()(float x) const { return rsqrtf(x); }
};

/// out = a * b, where b has one element for every row of a, or for every column.
template <typename T, bool kByRow>
struct Scaling {
  T* out;
  const T* a;
  const T* b;
  std::int64_t width;  ///< A multiple of the elements that are handled at once.

  template <int N>
  __device__ void at(std::int64_t i) const {
    float x[N];
    float factor[N];
    load<N>(x, a + i);
    if constexpr (kByRow) {
      factor[0] = to_float(b[i / width]);
    } else {
      load<N>(factor, b + i % width);
    }
#pragma unroll
    for (int k = 0; k < N; ++k) {
      x[k] *= factor[kByRow ? 0 : k];
    }
    store<N>(out + i, x);
  }
};

/// out = the element of its row / width: the gradient of a mean.
struct Spread {
  float* out;
  const float* rows;
  std::int64_t width;

  template <int N>
  __device__ void at(std::int64_t i) const {
    float x[N];
    const float value = rows[i / width] / static_cast<float>(width);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      x[k] = value;
    }
    store<N>(out + i, x);
  }
};

/// out[row] = factor * the sum over the row.
template <int N>
__global__ void __launch_bounds__(kMaxThreads) sum_rows(int team_size,
                                                        float* out,
                                                        const float* x,
                                                        float factor,
                                                        std::int64_t rows,
                                                        std::int64_t width) {
  const Team team = team_of(team_size);
  for (std::int64_t row = team.first_row; row < rows; row += team.row_step) {
    float values[N];
    float sum = 0;
    for (std::int64_t i = team.rank * N; i < width; i += team.size * N) {
      load<N>(values, x + row * width + i);
#pragma unroll
      for (int k = 0; k < N; ++k) {
        sum += values[k];
      }
    }
    sum = reduce_sum(team, sum);
    if (team.rank == 0) {
      out[row] = factor * sum;
    }
  }
}

/// The operations on matrices of these sizes.
struct RowOperations {
  const Stream& stream;
  std::int64_t rows;
  std::int64_t width;

  [[nodiscard]] std::int64_t count() const { return rows * width; }

  void sum(float* out, const float* x, float factor) const {
    constexpr int kN = kPack<float>;
    const bool packed = width % kN == 0 && aligned(kN, x);
    launch_rows(packed ? sum_rows<kN> : sum_rows<1>,
                stream,
                rows,
                packed ? width / kN : width,
                out,
                x,
                factor,
                rows,
                width);
  }
  template <bool kByRow, typename T>
  void scale(T* out, const T* a, const T* b) const {
    constexpr int kN = kPack<T>;
    const bool packed = width % kN == 0 && aligned(kN, out, a) && (kByRow || aligned(kN, b));
    launch_elements<kN>(stream, Scaling<T, kByRow>{out, a, b, width}, count(), packed);
  }
  void spread(float* out, const float* values) const {
    constexpr int kN = kPack<float>;
    const bool packed = width % kN == 0 && aligned(kN, out);
    launch_elements<kN>(stream, Spread{out, values, width}, count(), packed);
  }
};

/// What the forward keeps, as PyTorch's autograd does.
template <typename T>
struct KeptOfNorm {
  static constexpr bool kCasts = !std::is_same_v<T, float>;

  float* wide;     ///< [rows][width] x in F32, where that is another type.
  float* inverse;  ///< [rows] 1 / root of the mean square.
  T* normed;       ///< [rows][width]

  KeptOfNorm(void* saved, std::int64_t rows, std::int64_t width)
      : wide(static_cast<float*>(saved)),
        inverse(kCasts ? wide + rows * width : wide),
        normed(reinterpret_cast<T*>(inverse + (rows + 3) / 4 * 4)) {}
};

template <typename T>
void run_rms_norm(
    const RowOperations& run, T* out, float* saved, float* scratch, const T* x, const T* gain) {
  const KeptOfNorm<T> kept(saved, run.rows, run.width);
  float* const square = scratch;
  float* const row = scratch + run.count();
  const float* wide = kept.wide;
  if constexpr (KeptOfNorm<T>::kCasts) {
    map(run.stream, kept.wide, x, run.count(), Copied{});
  } else {
    wide = x;
  }
  map(run.stream, square, wide, run.count(), Squared{});
  run.sum(row, square, 1.0F / static_cast<float>(run.width));
  map(run.stream, row, row, run.rows, PlusConstant{kEpsilonOfRmsNorm});
  map(run.stream, kept.inverse, row, run.rows, InverseRoot{});
  if constexpr (KeptOfNorm<T>::kCasts) {
    run.scale<true>(square, wide, kept.inverse);
    map(run.stream, kept.normed, square, run.count(), Copied{});
  } else {
    run.scale<true>(kept.normed, wide, kept.inverse);
  }
  run.scale<false>(out, kept.normed, gain);
}

template <typename T>
void run_rms_norm_gradient(const RowOperations& run,
                           Array dx,
                           Store store,
                           Array dgain,
                           const T* dout,
                           const T* x,
                           const float* saved,
                           const T* gain,
                           float* scratch) {
  const KeptOfNorm<T> kept(const_cast<float*>(saved), run.rows, run.width);
  const std::int64_t count = run.count();
  float* const a = scratch;
  float* const b = a + count;
  float* const c = b + count;
  float* const d = c + count;
  float* const row1 = d + count;
  float* const row2 = row1 + (run.rows + 3) / 4 * 4;
  float* const columns = row2 + (run.rows + 3) / 4 * 4;
  T* const narrow = reinterpret_cast<T*>(a);
  map(run.stream, narrow, dout, kept.normed, count, Times{});
  add_column_sums(run.stream, dgain, {narrow, dx.dtype}, run.rows, run.width, columns);
  run.scale<false>(narrow, dout, gain);
  const float* d_normed = a;
  const float* wide = kept.wide;
  if constexpr (KeptOfNorm<T>::kCasts) {
    map(run.stream, b, narrow, count, Copied{});
    d_normed = b;
  } else {
    wide = x;
  }
  // The product of x and the reciprocal root, then the root, the mean and the square.
  run.scale<true>(c, d_normed, kept.inverse);
  map(run.stream, d, d_normed, wide, count, Times{});
  run.sum(row1, d, 1.0F);
  map(run.stream, row1, row1, run.rows, TimesConstant{-0.5F});
  map(run.stream, row2, kept.inverse, run.rows, Cubed{});
  map(run.stream, row1, row1, row2, run.rows, Times{});
  run.spread(a, row1);
  map(run.stream, b, wide, count, Copied{});  // pow(x, 1)
  map(run.stream, b, b, count, TimesConstant{2.0F});
  map(run.stream, a, a, b, count, Times{});
  const bool assigns = !KeptOfNorm<T>::kCasts && store == Store::Assign;
  map(run.stream, assigns ? data_of<float>(dx) : c, c, a, count, Plus{});
  if (!assigns) {
    scaled_copy(run.stream, dx, {c, Dtype::F32}, 1.0F, count, store);
  }
}

}  // namespace

void rms_norm_forward(const Stream& stream,
                      Array out,
                      float* saved,
                      float* scratch,
                      ConstArray x,
                      ConstArray gain,
                      std::int64_t rows,
                      std::int64_t width) {
  expect_dtype(x.dtype, out, gain);
  with_type(x.dtype, [&](auto type) {
    using T = typename decltype(type)::Type;
    run_rms_norm(RowOperations{stream, rows, width},
                 data_of<T>(out),
                 saved,
                 scratch,
                 data_of<T>(x),
                 data_of<T>(gain));
  });
}

void rms_norm_backward(const Stream& stream,
                       Array dx,
                       Store store,
                       Array dgain,
                       ConstArray dout,
                       ConstArray x,
                       const float* saved,
                       ConstArray gain,
                       float* scratch,
                       std::int64_t rows,
                       std::int64_t width) {
  expect_dtype(x.dtype, dx, dgain, dout, gain);
  with_type(x.dtype, [&](auto type) {
    using T = typename decltype(type)::Type;
    run_rms_norm_gradient(RowOperations{stream, rows, width},
                          dx,
                          store,
                          dgain,
                          data_of<T>(dout),
                          data_of<T>(x),
                          saved,
                          data_of<T>(gain),
                          scratch);
  });
}

std::int64_t rms_norm_saved(Dtype x, std::int64_t width) {
  const bool casts = stored_as(x) != Dtype::F32;
  // A row's floats: the reciprocal root with room to align what follows, x in F32 and the result.
  return 4 + (casts ? width : 0) + (width * element_size(x) + 3) / 4;
}

std::int64_t rms_norm_scratch(std::int64_t rows, std::int64_t width) {
  return 4 * rows * width + 2 * (rows + 3) + column_sums_scratch(rows, width);
}

}  // namespace stepsim::cuda
