#include "calibrate/cuda/timing/overlap_work.h"

#include <algorithm>

#include "calibrate/cuda/attention/sdpa.h"
#include "calibrate/cuda/kernels/gemm.h"
#include "calibrate/cuda/kernels/kernels.h"
#include "costmodel/base/input_error.h"

namespace stepsim::cuda {
namespace {

/// Memory with normal numbers.
class RandomArray {
 public:
  RandomArray(const Stream& stream, Dtype dtype, std::int64_t elements)
      : buffer_(static_cast<std::size_t>(elements * element_size(dtype))), dtype_(dtype) {
    fill_normal(stream, array(), elements, 1.0F, static_cast<std::uint64_t>(elements));
  }
  [[nodiscard]] Array array() const { return {buffer_.data(), dtype_}; }

 private:
  DeviceBuffer buffer_;
  Dtype dtype_;
};

class GemmWork : public OverlapWork {
 public:
  GemmWork(const TransformerConfig& model, const Stream& stream, std::int64_t tokens)
      : tokens_(tokens),
        in_(model.hidden),
        out_(std::max(model.ffn, model.hidden)),
        tf32_(model.dtype == Dtype::Tf32),
        x_(stream, stored_as(model.dtype), tokens * in_),
        w_(stream, stored_as(model.dtype), in_ * out_),
        y_(stream, stored_as(model.dtype), tokens * out_),
        gemm_(model.kernels == KernelChoice::TorchEager ? GemmRoute::Torch : GemmRoute::Lt) {}

  [[nodiscard]] std::string name() const override { return "gemm"; }

  void put(const Stream& stream) override {
    GemmCall call;
    call.m = tokens_;
    call.n = out_;
    call.k = in_;
    call.a = x_.array();
    call.b = w_.array();
    call.c = y_.array();
    call.lda = in_;
    call.ldb = in_;
    call.ldc = out_;
    call.transpose_b = true;
    call.tf32 = tf32_;
    gemm_.run(stream, call);
  }

 private:
  std::int64_t tokens_;
  std::int64_t in_;
  std::int64_t out_;
  bool tf32_;
  RandomArray x_;
  RandomArray w_;
  RandomArray y_;
  Gemm gemm_;
};

class CopyWork : public OverlapWork {
 public:
  CopyWork(const Stream& stream, Dtype dtype, std::int64_t elements)
      : elements_(elements), from_(stream, dtype, elements), to_(stream, dtype, elements) {}

  [[nodiscard]] std::string name() const override { return "memory"; }

  void put(const Stream& stream) override {
    scaled_copy(stream, to_.array(), from_.array(), 1.0F, elements_);
  }

 private:
  std::int64_t elements_;
  RandomArray from_;
  RandomArray to_;
};

class AttentionWork : public OverlapWork {
 public:
  AttentionWork(const TransformerConfig& model, const Stream& stream, std::int64_t tokens)
      : shape_(shape_of(model, tokens)),
        q_(stream, shape_.dtype, tokens * shape_.q_stride),
        k_(stream, shape_.dtype, tokens * shape_.kv_stride),
        v_(stream, shape_.dtype, tokens * shape_.kv_stride),
        o_(stream, shape_.dtype, tokens * shape_.o_stride),
        statistics_(static_cast<std::size_t>(tokens * shape_.heads) * sizeof(float)) {
    sdpa_.prepare(shape_);
  }

  [[nodiscard]] std::string name() const override { return "attention"; }

  void put(const Stream& stream) override {
    sdpa_.forward(stream,
                  shape_,
                  {},
                  {q_.array(), k_.array(), v_.array(), o_.array(), statistics_.as<float>()});
  }

 private:
  static SdpaShape shape_of(const TransformerConfig& model, std::int64_t tokens) {
    constexpr std::int64_t kLongest = 1024;
    SdpaShape shape;
    shape.dtype = model.dtype;
    shape.length = std::min({kLongest, tokens, model.max_length > 0 ? model.max_length : kLongest});
    shape.samples = tokens / shape.length;
    shape.heads = model.heads;
    shape.kv_heads = model.kv_heads > 0 ? model.kv_heads : model.heads;
    shape.head_dim = model.head_dim();
    shape.causal = model.causal;
    shape.q_stride = shape.heads * shape.head_dim;
    shape.kv_stride = shape.kv_heads * shape.head_dim;
    shape.o_stride = shape.q_stride;
    return shape;
  }

  SdpaShape shape_;
  RandomArray q_;
  RandomArray k_;
  RandomArray v_;
  RandomArray o_;
  DeviceBuffer statistics_;
  Sdpa sdpa_;
};

}  // namespace

std::vector<std::unique_ptr<OverlapWork>> overlap_works(const TransformerConfig& model,
                                                        const Stream& stream,
                                                        std::int64_t tokens,
                                                        std::int64_t copy_elements) {
  std::vector<std::unique_ptr<OverlapWork>> works;
  if (model.family != ModelFamily::Blocks) {
    works.push_back(std::make_unique<GemmWork>(model, stream, tokens));
    if (model.attention != AttentionKind::Dense) {
      try {
        works.push_back(std::make_unique<AttentionWork>(model, stream, tokens));
      } catch (const EnvironmentFault&) {
        // No plan for this shape: the other kinds of compute are measured all the same.
      }
    }
  }
  works.push_back(std::make_unique<CopyWork>(stream, stored_as(model.dtype), copy_elements));
  return works;
}

}  // namespace stepsim::cuda
