#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <iterator>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "sim/engine/engine.h"
#include "sim/parallel/ddp/ddp_program.h"
#include "sim/parallel/fsdp/zero3_program.h"

namespace stepsim::test {

/// Kinds of device work in a program of DdpCase, as labels of its instructions and spans.
enum Label : std::int32_t {
  kForwardOp,
  kBackwardOp,
  kZeroing,
  kCopyIn,
  kCopyOut,
  kOptimizer,
  kMemory,
  kLabels
};

/// A program, and what happened when it was played.
struct DdpRun {
  StepProgram program;
  ExecutionTrace played;

  /// Index of the n-th collective of that bucket (-1: of no bucket).
  [[nodiscard]] std::size_t collective(int bucket, int n = 0) const {
    for (std::size_t c = 0; c < program.uses.size(); ++c) {
      if (program.uses[c].bucket == bucket && n-- == 0) {
        return c;
      }
    }
    throw std::out_of_range("no such collective");
  }
  [[nodiscard]] SimTime launch(int bucket, std::size_t rank = 0) const {
    return played.collectives[collective(bucket)].arrival[rank];
  }
  [[nodiscard]] SimTime start(int bucket) const {
    return played.collectives[collective(bucket)].start;
  }
  [[nodiscard]] SimTime end(int bucket) const { return played.collectives[collective(bucket)].end; }
  [[nodiscard]] SimTime device_end(std::size_t rank = 0) const {
    return played.ranks[rank].device_end;
  }
  [[nodiscard]] Duration part(Phase part, std::size_t rank = 0) const {
    return played.ranks[rank].phases[static_cast<std::size_t>(part)];
  }
  [[nodiscard]] std::vector<double> bytes(CollectiveKind kind) const {
    std::vector<double> result;
    for (const CollectiveUse& use : program.uses) {
      if (use.kind == kind) {
        result.push_back(use.bytes);
      }
    }
    return result;
  }
  /// Launches of that kind by one rank.
  [[nodiscard]] std::int64_t launches(Label label, std::size_t rank = 0) const {
    const auto& all = program.program.ranks[rank];
    return std::count_if(all.begin(), all.end(), [&](const Instruction& in) {
      return in.kind == Opcode::Work && in.label == label;
    });
  }
  [[nodiscard]] std::int64_t host_syncs(std::size_t rank = 0) const {
    const auto& all = program.program.ranks[rank];
    return std::count_if(
        all.begin(), all.end(), [](const Instruction& in) { return in.kind == Opcode::HostSync; });
  }
  [[nodiscard]] std::vector<TraceSpan> spans(Label label, std::int32_t rank = 0) const {
    std::vector<TraceSpan> result;
    std::copy_if(played.spans.begin(),
                 played.spans.end(),
                 std::back_inserter(result),
                 [&](const TraceSpan& span) { return span.label == label && span.rank == rank; });
    return result;
  }
};

/// A DDP step of round numbers: fp32 parameters in a chain, whose gradients become ready in reverse
/// order of registration, one an op. One forward op. All ranks alike. Unless a test says otherwise
/// launches and DDP's own kernels are free, and an all-reduce takes 1 ns a byte.
struct DdpCase {
  explicit DdpCase(const std::vector<std::int64_t>& bytes, int ranks = 2) {
    const auto count = static_cast<int>(bytes.size());
    for (int p = 0; p < count; ++p) {
      const std::int64_t size = bytes[static_cast<std::size_t>(p)];
      model.parameters.push_back({size, "f32", false});
      model.shapes.push_back({size / 4});
      model.completes.push_back({count - 1 - p});
    }
    model.forward_unit = {0};
    model.backward_unit.assign(bytes.size(), 0);
    model.labels.assign(kLabels, "op");
    ready.resize(bytes.size());
    std::iota(ready.rbegin(), ready.rend(), 0);
    step.iterations.resize(1);
    step.iterations[0].uses_rebuilt = true;
    step.ranks.resize(static_cast<std::size_t>(ranks));
    for (RankWork& rank : step.ranks) {
      rank.owned_elements = model.total_bytes() / 4;
    }
    limits(1000, 10000);
    compute(Duration(500), Duration(1000));
  }

  /// First limit and cap of the buckets; `find_unused`: those of the constructor have them, too.
  void limits(std::int64_t first, std::int64_t cap, bool find_unused = false) {
    buckets.initial = initial_buckets(model.parameters, find_unused, first, cap);
    buckets.rebuilt =
        find_unused ? buckets.initial : rebuilt_buckets(model.parameters, ready, first, cap);
  }

  /// The same micro-batches on every rank, one an iteration of the step.
  void compute(Duration forward, Duration backward) {
    MicroBatchWork batch;
    Kernel op;
    op.launch = launch;
    op.work = forward;
    op.label = kForwardOp;
    batch.forward = {op};
    op.work = backward;
    op.label = kBackwardOp;
    batch.backward.assign(model.completes.size(), op);
    for (RankWork& rank : step.ranks) {
      rank.micro_batches.assign(step.iterations.size(), batch);
    }
  }

  [[nodiscard]] MicroBatchWork& batch(std::size_t rank, std::size_t micro_batch = 0) {
    return step.ranks[rank].micro_batches[micro_batch];
  }

  [[nodiscard]] DdpRun play() const {
    StepPrices all = prices;
    all.elements = [this](OpClass op_class, std::int64_t, double) {
      switch (op_class) {
        case OpClass::ZeroGradient:
          return kernel(kZeroing, zeroing);
        case OpClass::GradientCopyIn:
          return kernel(kCopyIn, copy_in);
        case OpClass::GradientCopyOut:
          return kernel(kCopyOut, copy_out);
        default:
          return kernel(kOptimizer, optimizer);
      }
    };
    all.memory = [this](double bytes, double) {
      return kernel(kMemory, memory + to_duration(memory_ns_a_byte * bytes * 1e-9));
    };
    all.transfer = [this](CollectiveKind, double bytes, const RankGroup&) { return reduce(bytes); };
    DdpRun run;
    run.program = (options.zero_stage == 3 ? zero3_program : ddp_program)(
        model, buckets, options, host, all, step);
    EngineRules playing = rules;
    const auto ranks = static_cast<int>(step.ranks.size());
    playing.communicators = ddp_communicators(options, host.waits_for_collectives, ranks);
    Engine engine(playing, std::vector<RankClock>(step.ranks.size()));
    run.played = engine.play(run.program.program, true);
    return run;
  }

  TrainedModel model;
  std::vector<int> ready;  ///< Parameters in the order of their gradients.
  BucketLists buckets;
  DdpOptions options;
  StepHost host;
  StepPrices prices;  ///< Host times only; the rest comes from the fields below.
  StepWork step;
  EngineRules rules;
  Duration launch{0};  ///< Of every kernel.
  Duration zeroing{0};
  Duration copy_in{0};
  Duration copy_out{0};
  Duration optimizer{0};
  Duration memory{0};           ///< Any other memory-bound kernel, whatever its size.
  double memory_ns_a_byte = 0;  ///< What its bytes add.
  /// Time of a collective of so many bytes.
  std::function<Duration(double)> reduce = [](double bytes) {
    return Duration(static_cast<std::int64_t>(bytes));
  };

 private:
  [[nodiscard]] Kernel kernel(Label label, Duration work) const {
    Kernel result;
    result.launch = launch;
    result.work = work;
    result.bound = Bound::Memory;
    result.label = label;
    return result;
  }
};

[[nodiscard]] inline SimTime time_at(std::int64_t ns) {
  return SimTime(Duration(ns));
}

/// Latency and bytes per nanosecond.
[[nodiscard]] inline std::function<Duration(double)> alpha_beta(double alpha_ns, double ns_a_byte) {
  return [=](double bytes) { return to_duration((alpha_ns + bytes * ns_a_byte) * 1e-9); };
}

}  // namespace stepsim::test
