#include "calibrate/cuda/training/training_device.h"

#include "calibrate/cuda/attention/sdpa_kernels.h"
#include "calibrate/cuda/eager/eager.h"
#include "calibrate/training/tape_attention.h"
#include "calibrate/training/tape_linear.h"
#include "calibrate/training/tape_rows.h"
#include "costmodel/model/memory.h"

namespace stepsim::cuda {

const TransformerConfig& TrainingDevice::supported(const TransformerConfig& config) {
  check(config);
  const bool half = config.dtype == Dtype::Bf16 || config.dtype == Dtype::F16;
  if (config.dtype == Dtype::F64 || config.parameter_dtype == Dtype::F64) {
    throw InputError("the CUDA backend computes in f32, tf32, bf16 and f16");
  }
  if (stored_as(config.parameter_dtype) != Dtype::F32 && config.parameter_dtype != config.dtype) {
    throw InputError(
        "the CUDA backend keeps parameters in f32 or in the model's dtype; set "
        "model.parameter_dtype = \"f32\"");
  }
  if (config.attention == AttentionKind::Dense) {
    return config;
  }
  if (!half || config.head_dim() % 8 != 0 || config.head_dim() > 256) {
    throw InputError(
        "fused attention takes bf16 or f16 and heads of a multiple of 8 up to 256 "
        "features; the model has {} and {}; set model.attention = \"dense\"",
        name_of(config.dtype),
        config.head_dim());
  }
  return config;
}

TrainingDevice::TrainingDevice(const TransformerConfig& config)
    : gemm(config.kernels == KernelChoice::TorchEager ? GemmRoute::Torch : GemmRoute::Lt),
      eager_(config.kernels == KernelChoice::TorchEager),
      autocasts_(autocast(config)),
      norm_is_written_out_(eager_ && config.family == ModelFamily::Llama) {}

Dtype TrainingDevice::activation_dtype(ActivationKind kind, Dtype dtype) const {
  return written_out(kind) && autocasts_ ? Dtype::F32 : dtype;
}

std::int64_t TrainingDevice::saved_of_activation(ActivationKind kind,
                                                 std::int64_t width,
                                                 Dtype dtype) const {
  return written_out(kind) ? gelu_new_saved(dtype, activation_dtype(kind, dtype), width) : 0;
}

void TrainingDevice::activation_forward(
    ActivationKind kind, Array y, float* saved, ConstArray x, std::int64_t count) {
  if (written_out(kind)) {
    gelu_new_forward(stream, y, saved, floats(gelu_new_scratch(count)), x, count);
  } else {
    cuda::activation_forward(stream, kind, y, x, count);
  }
}

void TrainingDevice::activation_backward(ActivationKind kind,
                                         Array dx,
                                         ConstArray dy,
                                         const float* saved,
                                         ConstArray x,
                                         std::int64_t count) {
  if (written_out(kind)) {
    gelu_new_backward(stream, dx, dy, x, saved, floats(gelu_new_scratch(count)), count);
  } else {
    cuda::activation_backward(stream, kind, dx, dy, x, count);
  }
}

std::int64_t TrainingDevice::saved_of_norm(bool rms, std::int64_t width, Dtype dtype) const {
  return rms && norm_is_written_out_ ? rms_norm_saved(dtype, width) : 2;
}

void TrainingDevice::norm_forward(bool rms,
                                  Array out,
                                  float* saved,
                                  ConstArray x,
                                  const NormWeights& weights,
                                  std::int64_t rows,
                                  std::int64_t width) {
  if (rms && norm_is_written_out_) {
    float* const memory = floats(rms_norm_scratch(rows, width));
    rms_norm_forward(stream, out, saved, memory, x, weights.gain, rows, width);
  } else {
    cuda::norm_forward(stream, rms, out, saved, x, weights, rows, width);
  }
}

void TrainingDevice::norm_backward(bool rms,
                                   Array dx,
                                   Store store,
                                   const NormGradients& gradients,
                                   ConstArray dout,
                                   ConstArray x,
                                   const float* saved,
                                   const NormWeights& weights,
                                   std::int64_t rows,
                                   std::int64_t width) {
  if (rms && norm_is_written_out_) {
    float* const memory = floats(rms_norm_scratch(rows, width));
    rms_norm_backward(
        stream, dx, store, gradients.gain, dout, x, saved, weights.gain, memory, rows, width);
  } else {
    float* const memory = floats(norm_scratch(rows, width));
    cuda::norm_backward(
        stream, rms, dx, store, gradients, dout, x, saved, weights, rows, width, memory);
  }
}

std::int64_t TrainingDevice::saved_of_loss(std::int64_t classes) const {
  return eager_ ? classes : 2;
}

void TrainingDevice::loss_forward(float* total,
                                  float* losses,
                                  float* saved,
                                  ConstArray logits,
                                  const std::int32_t* targets,
                                  std::int64_t rows,
                                  std::int64_t classes) {
  if (eager_) {
    float* const memory = floats(rows * classes);
    log_softmax_loss_forward(stream, total, saved, memory, logits, targets, rows, classes);
  } else {
    cross_entropy_forward(stream, losses, saved, logits, targets, rows, classes);
    sum_floats(stream, total, losses, rows);
  }
}

void TrainingDevice::loss_backward(Array dlogits,
                                   ConstArray logits,
                                   const float* saved,
                                   const std::int32_t* targets,
                                   float scale,
                                   std::int64_t rows,
                                   std::int64_t classes) {
  if (eager_) {
    float* const memory = floats(log_softmax_scratch(rows, classes));
    log_softmax_loss_backward(stream, dlogits, saved, memory, targets, scale, rows, classes);
  } else {
    cross_entropy_backward(stream, dlogits, logits, saved, targets, scale, rows, classes);
  }
}

void TrainingDevice::update(const AdamW& options,
                            Array weights,
                            Array m,
                            Array v,
                            ConstArray gradient,
                            std::int64_t count,
                            std::int64_t step) {
  if (eager_) {
    const Array root = scratch(count, weights.dtype);
    foreach_adamw(stream, options, weights, m, v, gradient, root, count, step);
  } else {
    adamw_update(stream, options, weights, m, v, gradient, {}, count, step);
  }
}

void TrainingDevice::multiply(GemmCall call, Dtype dtype) {
  call.tf32 = dtype == Dtype::Tf32;
  gemm.run(stream, call);
}

std::int32_t* TrainingDevice::upload(Buffer& memory,
                                     const HostBuffer& staging,
                                     std::size_t bytes) const {
  memory.reserve(bytes);
  copy_to_device(stream, memory.data(), staging.as<void>(), bytes);
  return memory.as<std::int32_t>();
}

DenseCopies TrainingDevice::dense_copies(HeadCopies& copies,
                                         const DenseAttention& shape,
                                         Dtype dtype) {
  const std::int64_t elements = shape.head_elements();
  for (Buffer* buffer : {&copies.q, &copies.k, &copies.v}) {
    buffer->reserve(static_cast<std::size_t>(elements * element_size(dtype)));
  }
  return {{copies.q.data(), dtype},
          {copies.k.data(), dtype},
          {copies.v.data(), dtype},
          scratch(2 * elements, dtype)};
}

Array TrainingDevice::scratch(std::int64_t elements, Dtype dtype) {
  scratch_.reserve(static_cast<std::size_t>(elements * element_size(dtype)));
  return {scratch_.data(), dtype};
}

void TrainingDevice::release_scratch() {
  scratch_.release();
  mask_.release();
  sdpa.release();
}

void TrainingDevice::release(HeadCopies& copies) {
  for (Buffer* buffer : {&copies.q, &copies.k, &copies.v}) {
    buffer->release();
  }
}

float* TrainingDevice::floats(std::int64_t count) {
  return static_cast<float*>(scratch(count, Dtype::F32).data);
}

float* TrainingDevice::column_sums_scratch(std::int64_t rows, std::int64_t width) {
  return floats(cuda::column_sums_scratch(rows, width));
}

SdpaShape sdpa_shape(const SdpaShape& form, const BatchSize& size, KernelChoice kernels) {
  SdpaShape shape = form;
  shape.samples = size.samples;
  shape.length = size.length;
  shape.packed = size.packed;
  const bool pads = !size.packed && size.has_padding();
  if (kernels == KernelChoice::TorchEager && pads) {
    shape.biased = true;
    shape.causal = false;
    shape.window = 0;
    return shape;
  }
  shape.masked = pads && !shape.causal;
  return shape;
}

SdpaSequences TrainingDevice::sdpa_sequences(const BatchArrays& arrays) const {
  return {arrays.lengths, arrays.offsets, mask_.data()};
}

void TrainingDevice::write_mask(const SdpaShape& shape, const BatchArrays& arrays) {
  if (!shape.biased) {
    return;
  }
  const std::int64_t elements = shape.samples * shape.length * mask_stride(shape.length);
  mask_.reserve(static_cast<std::size_t>(elements * element_size(shape.dtype)));
  padding_mask(stream,
               {mask_.data(), shape.dtype},
               {arrays.lengths, sdpa_form.causal, sdpa_form.window},
               shape.samples,
               shape.length);
}

}  // namespace stepsim::cuda

namespace stepsim {

template <>
Tensor<cuda::TrainingDevice>& Tape<cuda::TrainingDevice>::attention(const Op& op,
                                                                    const Part& q,
                                                                    const Part& k,
                                                                    const Part& v) {
  Value& out = make(Extent::Tokens, config().heads * config().head_dim());
  Value& statistics = make_floats(Extent::Padded, config().heads);
  cuda::SdpaShape& form = context_.device.sdpa_form;
  form.dtype = config().dtype;
  form.heads = config().heads;
  form.kv_heads = config().kv_heads;
  form.head_dim = config().head_dim();
  form.causal = config().causal;
  form.window = config().window;
  form.q_stride = q.value->width;
  form.kv_stride = k.value->width;
  form.o_stride = out.width;
  on_forward([this, q, k, v, &out, &statistics] {
    cuda::TrainingDevice& device = context_.device;
    const cuda::SdpaShape shape = device.sdpa_shape(context_.batch.size());
    device.write_mask(shape, context_.batch.arrays());
    cuda::SdpaForward arrays;
    arrays.q = read(q).array;
    arrays.k = read(k).array;
    arrays.v = read(v).array;
    arrays.o = write(out);
    arrays.statistics = write_floats(statistics);
    const cuda::SdpaSequences sequences = device.sdpa_sequences(context_.batch.arrays());
    device.sdpa.forward(device.stream, shape, sequences, arrays);
  });
  on_backward(op, Pass::Backward, [this, q, k, v, &out, &statistics] {
    cuda::TrainingDevice& device = context_.device;
    cuda::SdpaBackward arrays;
    arrays.q = read(q).array;
    arrays.k = read(k).array;
    arrays.v = read(v).array;
    arrays.o = out.array();
    arrays.d_o = out.gradient_array();
    arrays.statistics = statistics.floats();
    arrays.dq = write_part(q).array;
    arrays.dk = write_part(k).array;
    arrays.dv = write_part(v).array;
    const cuda::SdpaShape shape = device.sdpa_shape(context_.batch.size());
    const cuda::SdpaSequences sequences = device.sdpa_sequences(context_.batch.arrays());
    device.sdpa.backward(device.stream, shape, sequences, arrays);
    release_gradient(out);
  });
  return out;
}

template class Tape<cuda::TrainingDevice>;
template class Trainer<cuda::TrainingDevice>;

}  // namespace stepsim
