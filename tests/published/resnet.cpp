#include "tests/published/resnet.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

namespace stepsim::published {

namespace {

constexpr double kFlopsPerSecond = 15.7e12;
constexpr double kBytesPerSecond = 900e9;
constexpr double kElementBytes = 4;

/// Features of one layer: channels of size x size.
struct Map {
  int channels = 0;
  int size = 0;
};

class Builder {
 public:
  explicit Builder(int batch) : batch_(batch) {}

  std::vector<LayerTensor> build(const ResNet& net) {
    constexpr std::array kPlanes = {64, 128, 256, 512};
    const Map stem{64, 112};
    convolution("conv1", {3, 224}, stem, 7, 1, false);
    norm("bn1", stem);
    relu(stem);
    Map map{64, 56};
    traffic(elements(stem) + elements(map), 2 * elements(stem) + 3 * elements(map));  // max pool
    for (std::size_t layer = 0; layer < kPlanes.size(); ++layer) {
      const int size = 56 >> layer;
      const Map out{4 * kPlanes[layer], size};
      const int width = kPlanes[layer] * net.group_width / 64 * net.groups;
      for (int block = 0; block < net.blocks[layer]; ++block) {
        bottleneck(fmt::format("layer{}.{}.", layer + 1, block), map, width, net.groups, out);
        map = out;
      }
    }
    traffic(elements(map), elements(map));  // average pool
    convolution("fc", {map.channels, 1}, {1000, 1}, 1, 1, true);
    tensors_.back().shape = {1000, map.channels};
    add("fc.bias", {1000});
    return std::move(tensors_);
  }

 private:
  [[nodiscard]] double elements(const Map& map) const {
    return static_cast<double>(batch_) * map.channels * map.size * map.size;
  }

  LayerTensor& add(std::string name, std::vector<std::int64_t> shape) {
    tensors_.push_back({std::move(name), std::move(shape), {}, {}});
    return tensors_.back();
  }

  static void spend(Work& work, double flops, double tensor_elements) {
    work.flops += flops;
    work.seconds +=
        std::max(flops / kFlopsPerSecond, tensor_elements * kElementBytes / kBytesPerSecond);
  }

  /// Memory-bound work that belongs to the last tensor, in elements read and written.
  void traffic(double forward, double backward) {
    spend(tensors_.back().forward, 0, forward);
    spend(tensors_.back().backward, 0, backward);
  }

  void convolution(const std::string& name,
                   const Map& in,
                   const Map& out,
                   int kernel,
                   int groups,
                   bool input_gradient) {
    LayerTensor& weight =
        add(name + ".weight", {out.channels, in.channels / groups, kernel, kernel});
    const auto weights = static_cast<double>(weight.elements());
    const double flops = 2 * weights * elements(out) / out.channels;
    const double moved = elements(in) + elements(out) + weights;
    spend(weight.forward, flops, moved);
    for (int gradient = 0; gradient < (input_gradient ? 2 : 1); ++gradient) {
      spend(weight.backward, flops, moved);
    }
  }

  void norm(const std::string& name, const Map& map) {
    add(name + ".weight", {map.channels});
    add(name + ".bias", {map.channels});
    traffic(3 * elements(map), 5 * elements(map));
  }

  void relu(const Map& map) { traffic(2 * elements(map), 3 * elements(map)); }

  void bottleneck(const std::string& prefix, const Map& in, int width, int groups, const Map& out) {
    const Map narrow{width, in.size};
    const Map inner{width, out.size};
    convolution(prefix + "conv1", in, narrow, 1, 1, true);
    spend(tensors_.back().backward, 0, 3 * elements(in));  // Both gradients of the block's input.
    norm(prefix + "bn1", narrow);
    relu(narrow);
    convolution(prefix + "conv2", narrow, inner, 3, groups, true);
    norm(prefix + "bn2", inner);
    relu(inner);
    convolution(prefix + "conv3", inner, out, 1, 1, true);
    norm(prefix + "bn3", out);
    if (in.channels != out.channels || in.size != out.size) {
      convolution(prefix + "downsample.0", in, out, 1, 1, true);
      norm(prefix + "downsample.1", out);
    }
    traffic(3 * elements(out), 0);  // The sum; its gradient goes to both as it is.
    relu(out);
  }

  int batch_;
  std::vector<LayerTensor> tensors_;
};

double weight_of(const LayerTensor& tensor, const Work& work, Weighting weighting) {
  constexpr double kPicoseconds = 1e12;
  switch (weighting) {
    case Weighting::Bytes:
      return static_cast<double>(tensor.elements()) * kElementBytes;
    case Weighting::Flops:
      return work.flops;
    case Weighting::Roofline:
      return work.seconds * kPicoseconds;
  }
  return 0;
}

}  // namespace

std::span<const ResNet> resnets() {
  static const std::array<ResNet, 4> kNets = {{{"resnet50", {3, 4, 6, 3}, 1, 64},
                                               {"resnet101", {3, 4, 23, 3}, 1, 64},
                                               {"resnext50_32x4d", {3, 4, 6, 3}, 32, 4},
                                               {"resnext101_32x8d", {3, 4, 23, 3}, 32, 8}}};
  return kNets;
}

std::int64_t LayerTensor::elements() const {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) {
    count *= size;
  }
  return count;
}

std::vector<LayerTensor> resnet_tensors(const ResNet& net, int batch) {
  return Builder(batch).build(net);
}

std::string tensors_csv(std::span<const LayerTensor> tensors, Weighting weighting) {
  std::string csv = "name,shape,forward,backward\n";
  for (const LayerTensor& tensor : tensors) {
    csv += fmt::format("{},{},{:.0f},{:.0f}\n",
                       tensor.name,
                       fmt::join(tensor.shape, "x"),
                       weight_of(tensor, tensor.forward, weighting),
                       weight_of(tensor, tensor.backward, weighting));
  }
  return csv;
}

}  // namespace stepsim::published
