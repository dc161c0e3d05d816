#include <fmt/core.h>

#include "sim/scenario/key_table.h"
#include "sim/scenario/tables.h"

namespace stepsim {
namespace {

constexpr int kMaxQueue = 1 << 20;

void read_step_quantiles(const TomlReader& table, Scenario& scenario) {
  std::vector<double>& quantiles = scenario.noise.step_quantiles;
  for (const TomlValue& item : table.list("step_quantiles")) {
    const TomlReader quantile(table.document(), item, "noise.step_quantiles");
    const bool number = item.kind == TomlValue::Kind::Real || item.kind == TomlValue::Kind::Integer;
    const double value =
        item.kind == TomlValue::Kind::Integer ? static_cast<double>(item.integer) : item.real;
    const bool ascends = quantiles.empty() || value >= quantiles.back();
    if (!number || !(value > 0) || !ascends) {
      quantile.fail(
          "expected factors above 0 in ascending order, from the fastest step to the "
          "slowest, as [0.97, 1.0, 1.08]");
    }
    quantiles.push_back(value);
  }
  if (quantiles.size() < 2) {
    table.fail("step_quantiles", "expected at least two factors");
  }
}

/// A row of a field inside the measured times, which the scenario has while [times] is read.
template <typename Member>
auto times_field(Member member) {
  return [member](Scenario & s) -> auto& {
    return (*s.times).*member;
  };
}

}  // namespace

std::vector<Key> interference_keys() {
  using I = Interference;
  const auto interference = [](auto member) { return field(&Scenario::interference, member); };
  return {
      custom(
          "strength",
          [](const TomlReader& table, Scenario& s) {
            if (table.has("compute") || table.has("transfer")) {
              table.fail("strength",
                         "stands for compute and transfer together; give one or the other");
            }
            s.interference.compute = read_number(table, "strength", slowdown());
            s.interference.transfer = s.interference.compute;
          },
          "`compute` and `transfer` together: with k, a backward B over a transfer C takes max(B, "
          "C) + k min(B, C)",
          "0"),
      number("compute",
             interference(&I::compute),
             slowdown(),
             "compute takes 1 + this much while a collective is resident",
             "`strength`"),
      number("transfer",
             interference(&I::transfer),
             slowdown(),
             "a transfer takes 1 + this much while one of its ranks computes",
             "`strength`"),
      integer("multiprocessors",
              interference(&I::multiprocessors),
              {0, 1 << 16},
              "of the device: compute-bound kernels lose those that a collective's channels hold, "
              "by whole waves; 0: not counted"),
      integer("max_channels",
              interference(&I::max_channels),
              {1, 64},
              "channels that one collective holds at most, each 32 KiB or more (`NCCL_MAX_CTAS`)"),
      number("memory_share",
             interference(&I::memory_share),
             {[](double value) { return value >= 0 && value < 1; },
              "0 up to 1: collectives that take all of the memory bandwidth leave nothing"},
             "memory bandwidth that a resident collective takes from memory-bound kernels, from 0 "
             "up to 1"),
      number("limit",
             interference(&I::limit),
             slowdown(),
             "`multiprocessors` and `memory_share` slow compute by at most this much"),
      number("error",
             field(&Scenario::interference_error),
             {[](double value) { return value >= 0 && value <= 1; }, "from 0 to 1"},
             "standard deviation of `strength`, or of `compute` and `transfer`: it widens the "
             "interval"),
      flag("while_waiting",
           interference(&I::while_waiting),
           "a collective that waits for other ranks slows compute as well"),
  };
}

std::vector<Key> host_keys() {
  using H = HostOptions;
  const auto host = [](auto member) { return field(&Scenario::host, member); };
  return {
      touching(Stage::Planned,  // Policies that plan by time read it.
               duration("launch", host(&H::launch), "to launch one kernel", "the profile's")),
      integer("queue_depth",
              host(&H::queue_depth),
              {0, kMaxQueue},
              "kernels that it can be ahead of a stream; CUDA: about 1000; 0: no bound"),
      duration("enqueue", host(&H::enqueue), "to enqueue one collective"),
      duration("hook", host(&H::hook), "the reducer's work per gradient"),
      duration("python_hook", host(&H::python_hook), "per bucket with a `communication_hook`"),
      duration("unit_forward",
               host(&H::unit_forward),
               "fsdp2: a unit's hooks in its forward",
               "the profile's, or 0.87 ms"),
      duration("unit_forward_tensor",
               host(&H::unit_forward_tensor),
               "and more of it for each of its tensors",
               "the profile's, or 25 us"),
      duration("unit_backward",
               host(&H::unit_backward),
               "the same in its backward",
               "the profile's, or 1 ms"),
      duration("unit_backward_tensor",
               host(&H::unit_backward_tensor),
               "and for each of its tensors",
               "the profile's, or 45 us"),
      duration("sharded_tensor",
               host(&H::sharded_tensor),
               "fsdp2: what the optimizer takes more for a tensor, since it is sharded",
               "the profile's, or 48 us (foreach), on a CPU 0.5 ms (one by one)"),
      duration("cpu_optimizer",
               host(&H::cpu_optimizer),
               "fsdp2 with `offload`: what the optimizer takes on the CPU for a million "
               "parameters of a rank: `\"1.5 ms\"`",
               "none; `offload` needs it"),
      duration("traversal_per_op",
               host(&H::traversal_per_op),
               "per op of the graph, with `find_unused_parameters`"),
      duration("sync", host(&H::sync), "from the device's end to the host going on, when it waits"),
      flag("step_sync",
           host(&H::step_sync),
           "the host waits for the device after each step, as reading the loss does"),
      bandwidth("copy_bandwidth",
                host(&H::copy_bytes_per_s),
                "of batches to the device, and of shards and gradients with `offload`: `\"20 "
                "GB/s\"`",
                "no time; `offload` needs it"),
      number("error",
             host(&H::error),
             {[](double value) { return value >= 0 && value < 1; }, "a fraction from 0 up to 1"},
             "standard deviation of these times together, as a fraction: it widens the interval "
             "where the host decides the step",
             "0.05"),
  };
}

std::vector<Key> noise_keys() {
  using N = NoiseOptions;
  const auto noise = [](auto member) { return field(&Scenario::noise, member); };
  return {
      number("op_jitter",
             noise(&N::op_jitter),
             fraction(),
             "standard deviation of every single op, as a fraction"),
      number(
          "rank_speed", noise(&N::rank_speed), fraction(), "the same of the ranks' lasting speeds"),
      custom("step_quantiles",
             read_step_quantiles,
             "`[0.97, 1.0, 1.08]`: evenly spaced quantiles of a rank's step over its mean, "
             "ascending, in place of `cluster.jitter`; they are scaled so that steps drawn between "
             "them have the mean 1",
             "none"),
      number("rank_correlation",
             noise(&N::rank_correlation),
             fraction(),
             "how much of its jitter the ranks of a step have in common, 0 to 1: 0 makes every "
             "step wait for the unluckiest rank, 1 slows all alike",
             "0; of a profile's own jitter as measured"),
      number("stall_probability",
             noise(&N::stall_probability),
             fraction(),
             "how often a rank's forward stalls, each step"),
      duration("stall", noise(&N::stall), "what the forward takes longer then: `\"5 ms\"`"),
      number("loader_stall_probability",
             noise(&N::loader_stall_probability),
             fraction(),
             "how often loading one batch stalls"),
      duration("loader_stall", noise(&N::loader_stall), "what the batch takes longer then"),
  };
}

std::vector<Key> times_keys() {
  using M = MeasuredTimes;
  return {
      required(
          duration("forward", times_field(&M::forward), "`\"82.5 ms\"`, with nothing to reduce")),
      required(duration("backward", times_field(&M::backward), "the same of the backward")),
      duration("optimizer", times_field(&M::optimizer), "all that follows the last bucket"),
      integer("tokens",
              times_field(&M::tokens),
              {1},
              "padded tokens (with `varlen` useful ones) they were measured with: other batches "
              "take time in proportion, which is flagged",
              "the same for any batch"),
      number("error",
             times_field(&M::error),
             {[](double value) { return value >= 0 && value < 1; }, "a fraction from 0 up to 1"},
             "their standard deviation together, as a fraction; batches of other tokens than "
             "`tokens` add 0.15 for each doubling",
             "0.03"),
      bandwidth("copy_bandwidth",
                times_field(&M::copy_bytes_per_s),
                "of DDP's own copies of gradients, bytes read and written: `\"500 GB/s\"`",
                "copies are free"),
  };
}

void read_machine(const TomlReader& root, Scenario& scenario) {
  if (root.has("interference")) {
    read_keys(root.table("interference"), scenario);
    scenario.interference_given = true;
  }
  if (root.has("host")) {
    read_keys(root.table("host"), scenario);
  }
  if (root.has("noise")) {
    const TomlReader noise = root.table("noise");
    read_keys(noise, scenario);
    for (const std::string stall : {"stall", "loader_stall"}) {
      require_other(noise, stall, stall + "_probability", "how often that happens");
      require_other(noise, stall + "_probability", stall, "what it takes longer then");
    }
  }
  if (root.has("times")) {
    scenario.times.emplace();
    read_keys(root.table("times"), scenario);
  } else if (root.has("model") && root.table("model").has("tensors")) {
    root.table("model").fail("tensors",
                             "their work is a share of measured times; give [times] as well");
  }
}

}  // namespace stepsim
