#include "calibrate/import/kineto/kineto_batches.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "calibrate/import/kineto/kineto_dims.h"
#include "costmodel/base/mapped.h"

namespace stepsim {
namespace {

using Tensors = std::vector<const KinetoTensor*>;
using Dims = std::vector<std::int64_t>;

// Larger ones in a file are damage, or no samples and lengths.
constexpr std::int64_t kMostBatchSamples = 1'000'000;
constexpr std::int64_t kLongestSample = std::int64_t{1} << 20;
constexpr double kPatchPixels = 16.0 * 16.0;

/// What the main thread's ops took between the start of the forward and that of the backward.
Tensors tensors_of(const KinetoForward& forward) {
  const auto& tensors = forward.trace->tensors;
  Tensors found;
  auto tensor =
      std::ranges::lower_bound(tensors, forward.pass.forward_ns, {}, &KinetoTensor::start_ns);
  for (; tensor != tensors.end() && tensor->start_ns < forward.pass.backward_ns; ++tensor) {
    if (tensor->thread == forward.thread) {
      found.push_back(&*tensor);
    }
  }
  return found;
}

bool takes_batch(const KinetoTensor& tensor) {
  return tensor.of != KinetoTensorOf::Product && tensor.of != KinetoTensorOf::Attention &&
         tensor.of != KinetoTensorOf::Gradient;
}

/// Whether these indices are the positions of a row: a later embedding takes several rows as long.
bool is_positions(const Tensors& tensors, std::size_t which) {
  const KinetoTensor& one = *tensors[which];
  const std::int64_t length = elements_in(one.dims);
  const bool is_row =
      one.dims.size() == 1 || (one.dims.size() == 2 && std::ranges::min(one.dims) == 1);
  return one.of == KinetoTensorOf::Embedding && is_row &&
         std::any_of(tensors.begin() + static_cast<std::ptrdiff_t>(which),
                     tensors.end(),
                     [length](const KinetoTensor* later) {
                       return later->of == KinetoTensorOf::Embedding && later->dims.size() == 2 &&
                              std::ranges::find(later->dims, length) != later->dims.end() &&
                              elements_in(later->dims) > length;
                     });
}

/// The op of a forward pass that takes the batch; null when there is none.
const KinetoTensor* batch_of(const Tensors& tensors) {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (takes_batch(*tensors[i]) && !is_positions(tensors, i)) {
      return tensors[i];
    }
  }
  return nullptr;
}

/// What an op's dimensions mean.
struct Reading {
  const char* name = "";
  std::size_t dims = 0;        ///< How many of them there are.
  bool image = false;          ///< All from the third on are pixels.
  std::size_t length = 1;      ///< The place of the length; 0 = every sample has length 1.
  bool order_unknown = false;  ///< The first two may be swapped.
};

/// Nothing where they can mean several things.
std::optional<Reading> reading_of(const KinetoTensor& tensor) {
  constexpr bool kImage = true;
  constexpr bool kOrderUnknown = true;
  std::optional<Reading> reading;
  switch (tensor.of) {
    case KinetoTensorOf::Embedding:
      reading = {"aten::embedding's indices", 2, false, 1, kOrderUnknown};
      break;
    case KinetoTensorOf::Compiled:
      reading = {
          "the first table of whole numbers of CompiledFunction", 2, false, 1, kOrderUnknown};
      break;
    case KinetoTensorOf::Conv1d:
      reading = {"aten::conv1d's input", 3, false, 2};
      break;
    case KinetoTensorOf::Conv2d:
      reading = {"aten::conv2d's input", 4, kImage};
      break;
    case KinetoTensorOf::Conv3d:
      reading = {"aten::conv3d's input", 5, kImage};
      break;
    case KinetoTensorOf::Linear:
      reading = tensor.dims.size() == 2
                    ? Reading{"aten::linear's input", 2, false, 0}
                    : Reading{"aten::linear's input", 3, false, 1, kOrderUnknown};
      break;
    default:
      return std::nullopt;
  }
  return tensor.dims.size() == reading->dims ? reading : std::nullopt;
}

KinetoBatch batch_in(const Dims& dims, const Reading& reading, bool swapped) {
  if (reading.image) {
    const double pixels = static_cast<double>(elements_in(Dims(dims.begin() + 2, dims.end())));
    return {dims[0], std::max<std::int64_t>(std::llround(pixels / kPatchPixels), 1)};
  }
  if (reading.length == 0) {
    return {dims[0], 1};
  }
  return swapped ? KinetoBatch{dims[1], dims[0]} : KinetoBatch{dims[0], dims[reading.length]};
}

/// Whether attention over this batch multiplies such matrices.
bool fits_attention(const KinetoTensor& tensor, const KinetoBatch& batch) {
  const Dims& dims = tensor.dims;
  if (tensor.of == KinetoTensorOf::Attention) {
    return dims.size() == 4 && dims[0] == batch.samples && dims[2] == batch.length;
  }
  return dims.size() == 3 && batch.samples > 0 && dims[0] % batch.samples == 0 &&
         dims[1] == batch.length;
}

/// Whether the first two dimensions are swapped, by the first product or attention that tells.
std::optional<bool> told_by_attention(const Tensors& tensors, const Dims& dims) {
  for (const KinetoTensor* tensor : tensors) {
    if (tensor->of == KinetoTensorOf::Product || tensor->of == KinetoTensorOf::Attention) {
      const bool straight = fits_attention(*tensor, {dims[0], dims[1]});
      if (straight != fits_attention(*tensor, {dims[1], dims[0]})) {
        return !straight;
      }
    }
  }
  return std::nullopt;
}

std::string order_text(const Reading& reading, bool swapped, bool told, bool stated) {
  if (reading.image) {
    return "; a length is a patch of 16 x 16 pixels";
  }
  if (reading.length == 0) {
    return ", [samples, features]; every sample has length 1";
  }
  if (!reading.order_unknown) {
    return ", [samples, channels, length]";
  }
  return fmt::format(", [{}]{}",
                     swapped ? "length, samples" : "samples, length",
                     stated ? ""
                     : told ? ", as attention tells"
                            : "; if it is the other way round, give --dims length,samples");
}

KinetoBatches no_batches(std::string problem) {
  KinetoBatches result;
  result.problem = std::move(problem);
  return result;
}

}  // namespace

KinetoBatches kineto_batches(std::span<const KinetoForward> forwards,
                             std::optional<bool> length_first) {
  std::optional<Reading> reading;
  std::vector<Dims> shapes;
  int swapped = 0;
  int straight = 0;
  for (const KinetoForward& forward : forwards) {
    const Tensors tensors = tensors_of(forward);
    const KinetoTensor* const first = batch_of(tensors);
    if (first == nullptr) {
      return no_batches(
          forward.trace->tensors.empty()
              ? "the trace has no shapes; record with torch.profiler.profile(record_shapes=True)"
              : "no op of the forward pass takes a batch whose shape is known (an embedding, a "
                "convolution, a linear layer or a compiled graph of tokens); use "
                "stepsim_recorder.py");
    }
    const auto own = reading_of(*first);
    if (!own || (reading && own->name != reading->name)) {
      return no_batches(fmt::format(
          "the first op of the forward pass takes a tensor of [{}], which does not tell samples "
          "from length{}; use stepsim_recorder.py",
          fmt::join(first->dims, ", "),
          first->dims.size() == 1 ? " (a packed batch)" : ""));
    }
    reading = own;
    shapes.push_back(first->dims);
    const auto told = own->order_unknown ? told_by_attention(tensors, first->dims) : std::nullopt;
    swapped += told && *told ? 1 : 0;
    straight += told && !*told ? 1 : 0;
  }
  if (!reading) {
    return no_batches("there is no forward pass");
  }
  if (swapped > 0 && straight > 0 && !length_first) {
    return no_batches(fmt::format(
        "whether {} are [samples, length] or [length, samples] is not clear: attention tells the "
        "one in {} passes and the other in {}; say it with --dims",
        reading->name,
        straight,
        swapped));
  }
  const bool swap = reading->order_unknown && length_first.value_or(swapped > 0);
  KinetoBatches result;
  result.batches = mapped(shapes, [&](const Dims& dims) { return batch_in(dims, *reading, swap); });
  result.source =
      reading->name + order_text(*reading, swap, swapped + straight > 0, length_first.has_value());
  for (const KinetoBatch& batch : result.batches) {
    const bool possible = batch.samples >= 1 && batch.samples <= kMostBatchSamples &&
                          batch.length >= 1 && batch.length <= kLongestSample;
    if (!possible) {
      return no_batches(fmt::format("{}: {} samples x {} are no batch (1 to {} x 1 to {})",
                                    reading->name,
                                    batch.samples,
                                    batch.length,
                                    kMostBatchSamples,
                                    kLongestSample));
    }
  }
  return result;
}

}  // namespace stepsim
