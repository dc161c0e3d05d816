#include "calibrate/cuda/attention/sdpa.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "calibrate/cuda/attention/sdpa_kernels.h"
#include "calibrate/cuda/attention/sdpa_passes.h"
#include "calibrate/cuda/device/check_cuda.h"
#include "calibrate/measure/clock.h"
#include "costmodel/base/input_error.h"

namespace stepsim::cuda {
namespace {

class Handle {
 public:
  Handle() { check_cudnn(cudnnCreate(&handle_), "cudnnCreate"); }
  ~Handle() { cudnnDestroy(handle_); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  [[nodiscard]] cudnnHandle_t get() const { return handle_; }

 private:
  cudnnHandle_t handle_ = nullptr;
};

/// cuDNN on the current device.
struct SdpaLibrary {
  Handle handle;
  std::optional<CudnnDescriptor> device;  ///< None where cuDNN does not describe it.

  SdpaLibrary() {
    try {
      device.emplace(describe_device(handle.get()));
    } catch (const EnvironmentFault&) {
      device.reset();  // Plans are then made with the handle.
    }
    // Up to 9.15 gradients can be NaN where a length is no multiple of 128 (cudnn-frontend's issue
    // 160); up to 9.5 the scratch of dq had to be cleared before every call.
    if (cudnnGetVersion() < 91600) {
      throw EnvironmentFault("cuDNN " + cudnn_version() + " is older than 9.16");
    }
  }
};

/// Where a call's scratch lies in the workspace, in bytes.
struct Scratch {
  std::int64_t softmax_sum = 0;
  std::int64_t dq_sum = 0;
  std::int64_t offsets = 0;
  std::int64_t engine = 0;
  std::int64_t bytes = 0;
};

Scratch scratch_of(const SdpaShape& shape, const SdpaPasses& passes) {
  Scratch scratch;
  const auto place = [&](std::int64_t& at, std::int64_t bytes) {
    at = scratch.bytes;
    scratch.bytes += (bytes + 255) / 256 * 256;
  };
  const std::int64_t rows = shape.samples * shape.heads * shape.length;
  place(scratch.softmax_sum, rows * 4);
  place(scratch.dq_sum, rows * shape.head_dim * 4);
  place(scratch.offsets, 4 * (shape.samples + 1) * 8);
  place(
      scratch.engine,
      std::max(passes.forward.engine().workspace_bytes, passes.backward.engine().workspace_bytes));
  return scratch;
}

/// Pointers of one call, by what they are: on the device, or on the host for scalars.
using Bindings = std::map<GraphRole, const void*>;

/// Values that cuDNN reads from the host while it executes.
struct Scalars {
  float scale = 0;
  float one = 1.0F;
  float fill = -std::numeric_limits<float>::infinity();
  std::int32_t left = 0;
  std::int32_t right = 0;

  explicit Scalars(const SdpaShape& shape)
      : scale(1.0F / std::sqrt(static_cast<float>(shape.head_dim))),
        left(static_cast<std::int32_t>(shape.window)),
        right(static_cast<std::int32_t>(shape.window - 1)) {}

  void bind(Bindings& bindings) const {
    bindings[GraphRole::Scale] = &scale;
    bindings[GraphRole::One] = &one;
    bindings[GraphRole::MaskFill] = &fill;
    bindings[GraphRole::WindowLeft] = &left;
    bindings[GraphRole::WindowRight] = &right;
  }
};

void execute(const SdpaLibrary& library,
             const Stream& stream,
             const SdpaPass& pass,
             const Bindings& bindings,
             void* workspace) {
  std::vector<std::int64_t> ids;
  std::vector<void*> pointers;
  for (const auto& [id, role] : pass.bound()) {
    ids.push_back(id);
    pointers.push_back(const_cast<void*>(bindings.at(role)));
  }
  const auto count = static_cast<std::int64_t>(ids.size());
  CudnnDescriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, ids.data());
  pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count, pointers.data());
  pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
  pack.finalize("cuDNN variant pack");
  check_cudnn(cudnnSetStream(library.handle.get(), static_cast<cudaStream_t>(stream.handle())),
              "cudnnSetStream");
  check_cudnn(cudnnBackendExecute(library.handle.get(), pass.plan().handle(), pack.handle()),
              "cudnnBackendExecute");
}

/// work(0) … work(count - 1) on all cores.
template <typename Work>
void in_threads(std::size_t count, const Work& work) {
  std::atomic<std::size_t> next = 0;
  const auto take = [&] {
    for (std::size_t i = next++; i < count; i = next++) {
      work(i);
    }
  };
  std::vector<std::jthread> threads;
  const std::size_t cores = std::max(1U, std::thread::hardware_concurrency());
  for (std::size_t i = 1; i < std::min(cores, count); ++i) {
    threads.emplace_back(take);
  }
  take();
}

/// The passes of a compiled shape, or why there are none.
struct BuiltPasses {
  std::optional<SdpaPasses> passes;
  std::string why;
  double seconds = 0;
};

BuiltPasses build_passes(const SdpaShape& compiled, const CudnnTarget& target) {
  BuiltPasses built;
  const double start = clock_seconds();
  try {
    built.passes.emplace(sdpa_passes(compiled, target));
  } catch (const EnvironmentFault& fault) {
    built.why = fault.what();
  }
  built.seconds = clock_seconds() - start;
  return built;
}

}  // namespace

struct Sdpa::State {
  std::optional<SdpaLibrary> library;      ///< Made when first needed.
  std::map<SdpaShape, BuiltPasses> built;  ///< By compiled shape.
  DeviceBuffer workspace;

  const SdpaLibrary& loaded() {
    if (!library) {
      library.emplace();
    }
    return *library;
  }
  void build(std::span<const SdpaShape> shapes);
  SdpaPasses& passes_of(const SdpaShape& compiled);
  void run(const Stream& stream,
           const SdpaShape& shape,
           const SdpaSequences& sequences,
           bool is_forward,
           Bindings& bindings);
};

/// Compiles what is not there yet, in threads, which share nothing but the device's description.
/// What is refused so is tried once more with the handle.
void Sdpa::State::build(std::span<const SdpaShape> shapes) {
  const SdpaLibrary& cudnn = loaded();
  std::set<SdpaShape> missing;
  for (const SdpaShape& shape : shapes) {
    if (!built.contains(compiled_shape(shape))) {
      missing.insert(compiled_shape(shape));
    }
  }
  const std::vector<SdpaShape> wanted(missing.begin(), missing.end());
  std::vector<BuiltPasses> results(wanted.size());
  if (cudnn.device) {
    int device = 0;
    check_cuda(cudaGetDevice(&device), "cudaGetDevice");
    in_threads(wanted.size(), [&](std::size_t i) {
      try {
        use_device(device);
        results[i] = build_passes(wanted[i], *cudnn.device);
      } catch (const EnvironmentFault& fault) {
        results[i].why = fault.what();
      }
    });
  }
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (!results[i].passes) {
      BuiltPasses again = build_passes(wanted[i], CudnnTarget(cudnn.handle.get()));
      if (again.passes || results[i].why.empty()) {
        results[i] = std::move(again);
      }
    }
    built.emplace(wanted[i], std::move(results[i]));
  }
}

SdpaPasses& Sdpa::State::passes_of(const SdpaShape& compiled) {
  build({&compiled, 1});
  BuiltPasses& found = built.at(compiled);
  if (!found.passes) {
    throw EnvironmentFault(found.why);
  }
  return *found.passes;
}

void Sdpa::State::run(const Stream& stream,
                      const SdpaShape& shape,
                      const SdpaSequences& sequences,
                      bool is_forward,
                      Bindings& bindings) {
  const SdpaShape compiled = compiled_shape(shape);
  SdpaPasses& both = passes_of(compiled);
  SdpaPass& pass = is_forward ? both.forward : both.backward;
  const Scratch scratch = scratch_of(compiled, both);
  workspace.reserve(static_cast<std::size_t>(scratch.bytes));
  auto* const base = workspace.as<std::byte>();
  bindings[GraphRole::SoftmaxSum] = base + scratch.softmax_sum;
  bindings[GraphRole::DQSum] = base + scratch.dq_sum;
  bindings[GraphRole::Lengths] = sequences.lengths;
  bindings[GraphRole::Mask] = sequences.mask;
  if (shape.packed) {
    auto* const offsets = reinterpret_cast<std::int64_t*>(base + scratch.offsets);
    const std::int64_t count = shape.samples + 1;
    element_offsets(stream,
                    offsets,
                    sequences.offsets,
                    count,
                    {shape.q_stride, shape.kv_stride, shape.o_stride, shape.heads});
    bindings[GraphRole::QOffsets] = offsets;
    bindings[GraphRole::KvOffsets] = offsets + count;
    bindings[GraphRole::OOffsets] = offsets + 2 * count;
    bindings[GraphRole::StatisticsOffsets] = offsets + 3 * count;
  }
  const Scalars scalars(shape);
  scalars.bind(bindings);
  try {
    execute(*library, stream, pass, bindings, base + scratch.engine);
  } catch (const EnvironmentFault&) {
    // A plan that compiles may still be refused when it runs.
    if (!pass.use_next_plan(CudnnTarget(library->handle.get()))) {
      throw;
    }
    run(stream, shape, sequences, is_forward, bindings);
  }
}

Sdpa::Sdpa() : state_(std::make_unique<State>()) {}
Sdpa::~Sdpa() = default;

void Sdpa::prepare(const SdpaShape& shape) {
  static_cast<void>(state_->passes_of(compiled_shape(shape)));
}

std::vector<std::string> Sdpa::prepare_all(std::span<const SdpaShape> shapes) {
  state_->build(shapes);
  std::vector<std::string> reasons;
  for (const SdpaShape& shape : shapes) {
    reasons.push_back(state_->built.at(compiled_shape(shape)).why);
  }
  return reasons;
}

std::vector<SdpaPlan> Sdpa::plans() const {
  std::vector<SdpaPlan> plans;
  for (const auto& [shape, built] : state_->built) {
    if (built.passes) {
      const CudnnEngine& forward = built.passes->forward.engine();
      const CudnnEngine& backward = built.passes->backward.engine();
      plans.push_back({shape,
                       forward.index,
                       backward.index,
                       std::max(forward.workspace_bytes, backward.workspace_bytes),
                       built.seconds});
    }
  }
  return plans;
}

void Sdpa::release() {
  state_->workspace.release();
}

void Sdpa::forward(const Stream& stream,
                   const SdpaShape& shape,
                   const SdpaSequences& sequences,
                   const SdpaForward& arrays) {
  Bindings bindings{{GraphRole::Q, arrays.q.data},
                    {GraphRole::K, arrays.k.data},
                    {GraphRole::V, arrays.v.data},
                    {GraphRole::O, arrays.o.data},
                    {GraphRole::Statistics, arrays.statistics}};
  state_->run(stream, shape, sequences, true, bindings);
  if (shape.masked) {
    const TokenRows o{arrays.o.data, shape.o_stride, shape.heads * shape.head_dim};
    clear_padding(stream, {o}, sequences.lengths, shape.samples, shape.length);
  }
}

void Sdpa::backward(const Stream& stream,
                    const SdpaShape& shape,
                    const SdpaSequences& sequences,
                    const SdpaBackward& arrays) {
  Bindings bindings{{GraphRole::Q, arrays.q.data},
                    {GraphRole::K, arrays.k.data},
                    {GraphRole::V, arrays.v.data},
                    {GraphRole::O, arrays.o.data},
                    {GraphRole::DO, arrays.d_o.data},
                    {GraphRole::Statistics, arrays.statistics},
                    {GraphRole::DQ, arrays.dq.data},
                    {GraphRole::DK, arrays.dk.data},
                    {GraphRole::DV, arrays.dv.data}};
  state_->run(stream, shape, sequences, false, bindings);
  if (shape.masked) {
    const std::int64_t width = shape.kv_heads * shape.head_dim;
    const TokenRows dq{arrays.dq.data, shape.q_stride, shape.heads * shape.head_dim};
    const TokenRows dk{arrays.dk.data, shape.kv_stride, width};
    const TokenRows dv{arrays.dv.data, shape.kv_stride, width};
    clear_padding(stream, {dq, dk, dv}, sequences.lengths, shape.samples, shape.length);
  }
}

std::string cudnn_version() {
  const std::size_t version = cudnnGetVersion();
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

}  // namespace stepsim::cuda
