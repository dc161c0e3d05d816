#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace stepsim::published {

/// A bottleneck ResNet of torchvision, at 224 x 224 pixels and 1000 classes.
struct ResNet {
  std::string name;
  std::array<int, 4> blocks{};
  int groups = 1;
  int group_width = 64;
};

/// The four of PyTorch's benchmark of DDP: resnet50, resnet101, resnext50_32x4d, resnext101_32x8d.
[[nodiscard]] std::span<const ResNet> resnets();

/// What a part of a layer has to do.
struct Work {
  double flops = 0;    ///< Of convolutions and of the classifier; a multiply-add is two.
  double seconds = 0;  ///< At the peaks of a V100 SXM2 in fp32: 15.7 TFLOP/s, 900 GB/s.
};

/// One parameter tensor and the work that belongs to it: all that runs in the forward from it to
/// the next tensor, and in the backward until its gradient is ready.
struct LayerTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  Work forward;
  Work backward;

  [[nodiscard]] std::int64_t elements() const;
};

/// Tensors in order of registration.
///
/// A convolution is the longer of its operations and its traffic (input, output, weight), its
/// backward one such for each gradient. Traffic of the rest, in tensors forward and backward: batch
/// norm 3 and 5, ReLU 2 and 3, the sum of a block 3 and 3.
[[nodiscard]] std::vector<LayerTensor> resnet_tensors(const ResNet& net, int batch);

/// By what a tensor's work is measured.
enum class Weighting {
  Bytes,    ///< Of the tensor itself.
  Flops,    ///< Work::flops
  Roofline  ///< Work::seconds
};

/// The list as a file for model.tensors.
[[nodiscard]] std::string tensors_csv(std::span<const LayerTensor> tensors, Weighting weighting);

}  // namespace stepsim::published
