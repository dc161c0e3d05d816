// What the CUDA backend times ops with, on this machine's GPU: TFLOP/s or GB/s of each, and its
// share of the card's own ceiling (the largest product, the largest copy), measured in the same
// run.
#include <algorithm>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "calibrate/cuda/attention/sdpa.h"
#include "calibrate/cuda/kernels/gemm.h"
#include "calibrate/cuda/kernels/kernels.h"
#include "costmodel/base/input_error.h"
#include "tests/gpu/device_timer.h"

using namespace stepsim;
using namespace stepsim::cuda;

namespace {

constexpr std::int64_t kCeilingSize = 8192;                   // m, n and k of the largest product.
constexpr std::int64_t kCeilingCopy = std::int64_t{1} << 30;  // Bytes.
constexpr std::int64_t kTokens = 16384;
constexpr std::int64_t kHidden = 1024;  // GPT-2 medium, with the next.
constexpr std::int64_t kVocab = 50257;
constexpr Dtype kDtype = Dtype::Bf16;
constexpr int kIterations = 20;

/// What one launch does.
struct Work {
  double flops = 0;
  double bytes = 0;  ///< Of device memory, read and written.
  std::function<void()> launch;
};

/// Everything the benchmarks share.
struct Bench {
  DeviceTimer timer;
  Gemm gemm;
  Sdpa sdpa;
  double ceiling_flops = 0;  ///< Per second.
  double ceiling_bytes = 0;

  [[nodiscard]] const Stream& stream() const { return timer.stream(); }
};

/// Normal features on the device.
Array features(const Bench& bench, DeviceBuffer& buffer, std::int64_t count) {
  buffer.reserve(static_cast<std::size_t>(count * element_size(kDtype)));
  const Array array{buffer.data(), kDtype};
  fill_normal(bench.stream(), array, count, 1.0F, static_cast<std::uint64_t>(count));
  return array;
}

enum class Cache { Hot, Cold };

void measure(benchmark::State& state, Bench& bench, const Work& work, Cache cache) {
  const bool cold = cache == Cache::Cold;
  work.launch();  // What is loaded at its first use would wait for the hold.
  bench.stream().synchronize();
  const double once = bench.timer.seconds(work.launch, 3, false);
  // At least 100 us between the events, whose resolution is half a microsecond.
  const int launches = cold ? 1 : std::max(1, static_cast<int>(100e-6 / std::max(once, 1e-7)));
  double total = 0;
  for ([[maybe_unused]] auto _ : state) {
    const double seconds = bench.timer.seconds(work.launch, launches, cold);
    state.SetIterationTime(seconds);
    total += seconds;
  }
  const double mean = total / static_cast<double>(state.iterations());
  if (work.flops > 0) {
    state.counters["TFLOP/s"] = work.flops / mean * 1e-12;
    state.counters["share_of_ceiling"] = work.flops / mean / bench.ceiling_flops;
  } else {
    state.counters["GB/s"] = work.bytes / mean * 1e-9;
    state.counters["share_of_ceiling"] = work.bytes / mean / bench.ceiling_bytes;
  }
}

/// One launch's arrays live as long as its benchmark runs: `make` is called when it starts.
template <typename Make>
void add(Bench& bench, const std::string& name, Cache cache, Make make) {
  benchmark::RegisterBenchmark((name + (cache == Cache::Cold ? "/cold" : "/hot")).c_str(),
                               [&bench, cache, make](benchmark::State& state) {
                                 try {
                                   std::vector<DeviceBuffer> buffers(8);
                                   measure(state, bench, make(bench, buffers), cache);
                                   bench.stream().synchronize();
                                 } catch (const EnvironmentFault& fault) {
                                   state.SkipWithError(fault.what());
                                 }
                               })
      // The time of an iteration is that of one of its launches: Google Benchmark, which adds it up
      // until it has seen enough, would go on for a hundred times as long.
      ->Iterations(kIterations)
      ->UseManualTime()
      ->Unit(benchmark::kMicrosecond);
}

Work product(Bench& bench,
             std::vector<DeviceBuffer>& buffers,
             std::int64_t m,
             std::int64_t n,
             std::int64_t k,
             bool transpose_a,
             bool transpose_b) {
  GemmCall call;
  call.m = m;
  call.n = n;
  call.k = k;
  call.transpose_a = transpose_a;
  call.transpose_b = transpose_b;
  call.lda = transpose_a ? m : k;
  call.ldb = transpose_b ? k : n;
  call.ldc = n;
  call.a = features(bench, buffers[0], m * k);
  call.b = features(bench, buffers[1], k * n);
  call.c = features(bench, buffers[2], m * n);
  return {.flops = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k),
          .bytes = 0,
          .launch = [&bench, call] { bench.gemm.run(bench.stream(), call); }};
}

/// The three products of a linear layer of `in` to `out` features.
void add_linear(Bench& bench, const std::string& name, std::int64_t in, std::int64_t out) {
  add(bench,
      "gemm/" + name + "/forward",
      Cache::Hot,
      [in, out](Bench& b, std::vector<DeviceBuffer>& buffers) {
        return product(b, buffers, kTokens, out, in, false, true);
      });
  add(bench,
      "gemm/" + name + "/dgrad",
      Cache::Hot,
      [in, out](Bench& b, std::vector<DeviceBuffer>& buffers) {
        return product(b, buffers, kTokens, in, out, false, false);
      });
  add(bench,
      "gemm/" + name + "/wgrad",
      Cache::Hot,
      [in, out](Bench& b, std::vector<DeviceBuffer>& buffers) {
        return product(b, buffers, out, in, kTokens, true, false);
      });
}

/// Attention over kTokens tokens in sequences of `length`; packed ones of half and of full length
/// in turn.
struct AttentionLoad {
  SdpaShape shape;
  std::vector<std::int32_t> lengths, offsets;
  double score_elements = 0;  ///< Of one head, masked ones not counted.
};

AttentionLoad attention_load(std::int64_t length, bool causal, bool packed) {
  AttentionLoad load;
  load.offsets.push_back(0);
  for (bool full = true; load.offsets.back() + length <= kTokens; full = !full) {
    const auto tokens = static_cast<std::int32_t>(packed && !full ? length / 2 : length);
    load.lengths.push_back(tokens);
    load.offsets.push_back(load.offsets.back() + tokens);
    const auto square = static_cast<double>(tokens) * tokens;
    load.score_elements += causal ? (square + tokens) / 2 : square;
  }
  load.shape = {.dtype = kDtype,
                .samples = static_cast<std::int64_t>(load.lengths.size()),
                .length = length,
                .heads = 16,
                .kv_heads = 16,
                .head_dim = 64,
                .causal = causal,
                .packed = packed,
                .q_stride = 3 * kHidden,
                .kv_stride = 3 * kHidden,
                .o_stride = kHidden};
  return load;
}

const std::int32_t* upload(const Bench& bench,
                           DeviceBuffer& buffer,
                           const std::vector<std::int32_t>& values) {
  buffer.reserve(values.size() * sizeof(std::int32_t));
  copy_to_device(bench.stream(), buffer.data(), values.data(), buffer.bytes());
  bench.stream().synchronize();
  return buffer.as<std::int32_t>();
}

Work attention(Bench& bench,
               std::vector<DeviceBuffer>& buffers,
               const AttentionLoad& load,
               bool is_backward) {
  const SdpaShape shape = load.shape;
  const Array q = features(bench, buffers[0], kTokens * 3 * kHidden);
  const Array o = features(bench, buffers[1], kTokens * kHidden);
  const Array d_o = features(bench, buffers[2], kTokens * kHidden);
  const Array dq = features(bench, buffers[3], kTokens * 3 * kHidden);
  buffers[4].reserve(static_cast<std::size_t>(shape.samples * shape.heads * shape.length * 4));
  auto* const saved = buffers[4].as<float>();
  SdpaSequences sequences;
  if (shape.packed) {
    sequences = {upload(bench, buffers[5], load.lengths), upload(bench, buffers[6], load.offsets)};
  }
  const auto forward = [&bench, shape, sequences, q, o, saved] {
    bench.sdpa.forward(
        bench.stream(), shape, sequences, {q, q.at(kHidden), q.at(2 * kHidden), o, saved});
  };
  // Two products forward and five backward, each 2 * head_dim operations an element.
  const double one = 2.0 * load.score_elements * static_cast<double>(shape.heads * shape.head_dim);
  if (!is_backward) {
    return {.flops = 2 * one, .bytes = 0, .launch = forward};
  }
  forward();
  return {.flops = 5 * one, .bytes = 0, .launch = [=, &bench] {
            bench.sdpa.backward(bench.stream(),
                                shape,
                                sequences,
                                {q,
                                 q.at(kHidden),
                                 q.at(2 * kHidden),
                                 o,
                                 d_o,
                                 saved,
                                 dq,
                                 dq.at(kHidden),
                                 dq.at(2 * kHidden)});
          }};
}

/// Compiles the plans of all shapes side by side. Those that cuDNN refuses are left out, by name.
void add_attention(Bench& bench) {
  const char* const names[] = {"full", "causal", "packed_causal"};
  std::vector<AttentionLoad> loads;
  std::vector<SdpaShape> shapes;
  for (const std::int64_t length : {512, 1024, 2048, 4096, 8192}) {
    for (int kind = 0; kind < 3; ++kind) {
      loads.push_back(attention_load(length, kind > 0, kind == 2));
      shapes.push_back(loads.back().shape);
    }
  }
  const std::vector<std::string> reasons = bench.sdpa.prepare_all(shapes);
  for (std::size_t i = 0; i < loads.size(); ++i) {
    if (!reasons[i].empty()) {
      std::printf("left out: %s\n", reasons[i].c_str());
      continue;
    }
    const AttentionLoad& load = loads[i];
    for (const bool is_backward : {false, true}) {
      add(bench,
          std::string("attention/") + names[i % 3] + "/" + std::to_string(load.shape.length) +
              (is_backward ? "/backward" : "/forward"),
          Cache::Hot,
          [load, is_backward](Bench& b, std::vector<DeviceBuffer>& buffers) {
            return attention(b, buffers, load, is_backward);
          });
    }
  }
}

/// The two measures of bandwidth.
void add_bandwidth(Bench& bench, std::int64_t rows) {
  const std::string size = "/" + std::to_string(rows) + "x" + std::to_string(kHidden);
  const double bytes = static_cast<double>(rows * kHidden * element_size(kDtype));
  for (const Cache cache : {Cache::Hot, Cache::Cold}) {
    add(bench, "scaled_copy" + size, cache, [=](Bench& b, std::vector<DeviceBuffer>& buffers) {
      const Array from = features(b, buffers[0], rows * kHidden);
      const Array to = features(b, buffers[1], rows * kHidden);
      return Work{.flops = 0, .bytes = 2 * bytes, .launch = [=, &b] {
                    scaled_copy(b.stream(), to, from, 1, rows * kHidden);
                  }};
    });
    add(bench, "row_sums" + size, cache, [=](Bench& b, std::vector<DeviceBuffer>& buffers) {
      const Array x = features(b, buffers[0], rows * kHidden);
      buffers[1].reserve(static_cast<std::size_t>(rows) * sizeof(float));
      auto* const sums = buffers[1].as<float>();
      return Work{.flops = 0, .bytes = bytes, .launch = [=, &b] {
                    row_sums(b.stream(), sums, x, rows, kHidden);
                  }};
    });
  }
}

/// The card's largest product and copy, best of several: what shares are shares of.
void measure_ceiling(Bench& bench) {
  std::vector<DeviceBuffer> buffers(8);
  const Work largest =
      product(bench, buffers, kCeilingSize, kCeilingSize, kCeilingSize, false, true);
  const Array from = features(bench, buffers[3], kCeilingCopy / element_size(kDtype));
  const Array to = features(bench, buffers[4], kCeilingCopy / element_size(kDtype));
  largest.launch();
  const auto copy = [&] {
    scaled_copy(bench.stream(), to, from, 1, kCeilingCopy / element_size(kDtype));
  };
  for (int i = 0; i < 20; ++i) {
    bench.ceiling_flops = std::max(bench.ceiling_flops,
                                   largest.flops / bench.timer.seconds(largest.launch, 5, false));
    bench.ceiling_bytes =
        std::max(bench.ceiling_bytes,
                 2.0 * static_cast<double>(kCeilingCopy) / bench.timer.seconds(copy, 5, false));
  }
  std::printf("ceiling: %.0f TFLOP/s (bf16, %lld cubed), %.0f GB/s (copy of %lld MiB)\n",
              bench.ceiling_flops * 1e-12,
              static_cast<long long>(kCeilingSize),
              bench.ceiling_bytes * 1e-9,
              static_cast<long long>(kCeilingCopy >> 20));
}

void add_all(Bench& bench) {
  add_linear(bench, "qkv", kHidden, 3 * kHidden);
  add_linear(bench, "projection", kHidden, kHidden);
  add_linear(bench, "mlp_up", kHidden, 4 * kHidden);
  add_linear(bench, "mlp_down", 4 * kHidden, kHidden);
  add_linear(bench, "logits", kHidden, kVocab);
  add(bench, "gemm/ceiling", Cache::Hot, [](Bench& b, std::vector<DeviceBuffer>& buffers) {
    return product(b, buffers, kCeilingSize, kCeilingSize, kCeilingSize, false, true);
  });
  add_attention(bench);
  for (const std::int64_t rows : {2048, 16384, 131072}) {
    add_bandwidth(bench, rows);
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    use_device(0);
    const DeviceInfo info = device_info();
    std::printf("device: %s, cuBLASLt %s, cuDNN %s\n",
                info.name.c_str(),
                cublas_version().c_str(),
                cudnn_version().c_str());
    benchmark::Initialize(&argc, argv);
    Bench bench;
    measure_ceiling(bench);
    add_all(bench);
    benchmark::RunSpecifiedBenchmarks();
  } catch (const EnvironmentFault& fault) {
    std::printf("SKIPPED: %s\n", fault.what());
    return 77;
  }
  return 0;
}
