#include "sim/predict/step_pricer.h"

#include <algorithm>
#include <cmath>

#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "costmodel/compute/fit_errors.h"
#include "costmodel/network/nccl_model.h"
#include "sim/engine/time_limit.h"

namespace stepsim {
namespace {

/// Bytes below which a message costs the floor of its collective, wherever that was measured: such
/// prices (scalars, bucket indices) are not worth a warning.
constexpr double kSmallMessage = 32 * 1024;

/// The nodes of the first `ranks` ranks that are `stride` apart.
int nodes_of_first(const Placement& placement, int ranks, int stride) {
  if (stride == 1) {
    return placement.first(ranks).nodes();
  }
  std::set<int> nodes;
  for (int i = 0; i < ranks; ++i) {
    nodes.insert(placement.node_of(i * stride));
  }
  return static_cast<int>(nodes.size());
}

}  // namespace

void StepPricer::begin_step(int number) {
  const int warmup_steps = scenario().warmup_steps;
  refuses_ = number >= std::max(1, warmup_steps) || scenario().steps == 1;
  is_noted_ = number >= warmup_steps;
}

double StepPricer::collective_seconds(CollectiveKind kind, double bytes, const RankGroup& group) {
  const int ranks = group.ranks > 0 ? group.ranks : scenario().ranks;
  const auto whole = static_cast<std::int64_t>(std::ceil(bytes));
  const auto key = std::make_tuple(kind, whole, ranks, group.stride);
  const auto known = prices_.find(key);
  if (known != prices_.end() && !(refuses_ && beyond_.contains(key))) {
    return known->second;
  }
  const int nodes = nodes_of_first(scenario().placement, ranks, group.stride);
  CollectivePrice price;
  try {
    price = pricer_.price(kind, Bytes(whole), ranks, nodes);
  } catch (const InputError&) {
    if (refuses_) {
      throw;
    }
    price = pricer_.at_any_size().price(kind, Bytes(whole), ranks, nodes);
    beyond_.insert(key);
    if (!is_noted_) {
      return prices_[key] = price.cost.seconds;
    }
  }
  const Cost& cost = price.cost;
  priced_seconds_ += cost.seconds;
  error_seconds_ += cost.seconds * sd_of_mean_absolute(cost.shared_error);
  drawn_seconds_.resize(std::max(drawn_seconds_.size(), price.draws.size()));
  for (std::size_t draw = 0; draw < price.draws.size(); ++draw) {
    drawn_seconds_[draw] += cost.seconds * price.draws[draw];
  }
  if (static_cast<double>(whole) >= kSmallMessage) {
    sources_[std::string(name_of(kind)) + ": " + price.text] = price.source;
    if (cost.extrapolation > 1) {
      note(std::string(name_of(kind))).outside(cost);
    }
  }
  return prices_[key] = cost.seconds;
}

std::vector<double> StepPricer::collective_draws() const {
  return mapped(drawn_seconds_, [&](double seconds) {
    return priced_seconds_ > 0 ? seconds / priced_seconds_ : 1;
  });
}

/// A memory-bound pass over so many bytes as a copy of elements, which reads and writes each once,
/// in so many parts.
std::pair<std::int64_t, std::int64_t> StepPricer::memory_pass(double bytes) const {
  const auto element = static_cast<double>(element_size(scenario().model.parameter_dtype));
  const double count = std::max(1.0, std::ceil(bytes / (2 * element)));
  // A large pass costs as much as several over parts, which stay within measured sizes.
  constexpr double kPart = 1 << 28;
  const double parts = std::ceil(count / kPart);
  return {static_cast<std::int64_t>(std::ceil(count / parts)), static_cast<std::int64_t>(parts)};
}

StepPrices StepPricer::numbered_prices(const CostFactors& factors, double common) {
  StepPrices prices = ddp_prices(factors, common);
  const auto numbered = [this](OpClass op_class, std::int64_t elements, std::int64_t parts) {
    (void)ddp_kernel(op_class, elements, {}, 1, parts);  // It is priced.
    Kernel kernel;
    kernel.label = ddp_work(op_class, elements, parts);
    return kernel;
  };
  prices.elements = [numbered](OpClass op_class, std::int64_t count, double) {
    return numbered(op_class, count, 1);
  };
  prices.memory = [this, numbered](double bytes, double) {
    const auto [elements, parts] = memory_pass(bytes);
    return numbered(OpClass::GradientCopyIn, elements, parts);
  };
  return prices;
}

StepPrices StepPricer::ddp_prices(const CostFactors& factors, double common) {
  StepPrices prices;
  prices.elements = [this, factors](OpClass op_class, std::int64_t count, double slowness) {
    return ddp_kernel(op_class, count, factors, slowness);
  };
  prices.memory = [this, factors](double bytes, double slowness) {
    const auto [elements, parts] = memory_pass(bytes);
    Kernel kernel = ddp_kernel(OpClass::GradientCopyIn, elements, factors, slowness, parts);
    if (kernel.work == Duration::zero() && copies_by_byte()) {
      kernel.work = bounded_duration(bytes * unit_host_.byte_seconds * slowness * factors.host);
    }
    return kernel;
  };
  if (const double speed = scenario().host.copy_bytes_per_s; speed > 0) {
    prices.host_copy = [launch = launch_seconds(), factors, speed](double bytes) {
      Kernel kernel;
      kernel.launch = bounded_duration(launch * factors.host);
      kernel.work = bounded_duration(bytes / speed);
      kernel.bound = Bound::Unaffected;
      return kernel;
    };
  }
  constexpr double kMillion = 1e6;
  prices.host_optimizer =
      to_seconds(scenario().host.cpu_optimizer.value_or(Duration(0))) * factors.host / kMillion;
  prices.transfer = [this, factors, common](
                        CollectiveKind kind, double bytes, const RankGroup& group) {
    return bounded_duration(common * factors.of_collective(bytes) *
                            collective_seconds(kind, bytes, group));
  };
  if (scenario().interference.multiprocessors > 0) {
    // A ring with as many channels as the scenario allows, too wide to halve its threads.
    NcclSystem system;
    system.ranks = scenario().ranks;
    system.ring.channels = scenario().interference.max_channels;
    system.ring.intra_gb_per_s = 1000;
    prices.channels = [system](double bytes) {
      return nccl_launch(system, NcclAlgorithm::Ring, NcclProtocol::Simple, bytes).channels;
    };
  }
  const HostOptions& host = scenario().host;
  const auto drawn = [&](Duration time) {
    return bounded_duration(to_seconds(time) * factors.host);
  };
  prices.enqueue = drawn(host.enqueue);
  prices.hook = drawn(host.hook);
  prices.python_hook = drawn(host.python_hook);
  prices.unit_host = {drawn(host.unit_forward.value_or(unit_host_.forward)),
                      drawn(host.unit_forward_tensor.value_or(unit_host_.forward_tensor)),
                      drawn(host.unit_backward.value_or(unit_host_.backward)),
                      drawn(host.unit_backward_tensor.value_or(unit_host_.backward_tensor)),
                      drawn(host.sharded_tensor.value_or(unit_host_.optimizer_tensor)),
                      unit_host_.byte_seconds};
  prices.traversal_per_op = drawn(host.traversal_per_op);
  prices.sync = drawn(host.sync);
  return prices;
}

}  // namespace stepsim
