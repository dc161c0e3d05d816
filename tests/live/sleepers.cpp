/// Plays training steps whose layers take stated times on each rank, under DDP or FSDP2 on a CPU.
///
///     sleepers JOBS.json
///
/// JOBS.json: a list of jobs; a line of milliseconds is printed for each. Members of a job:
/// "kind": "ddp" or "fsdp2"; "elements": [root, layer 0, …], a tensor each; "work_ms":
/// [micro-batch][rank][layer][forward, backward]; "optimizer_ms"; "all_gather", "reduce_scatter",
/// "all_reduce", "copy": tables [[bytes, ms], …] over 2 ranks. For fsdp2 also "root_freed",
/// "layers_kept", "async": booleans; "forward_prefetch", "backward_prefetch": how many layers ahead
/// an explicit list reaches, 0: no list; "accumulate": "reduce", "no_sync" or "keep_no_sync";
/// "unit_forward_ms", "unit_forward_tensor_ms", "unit_backward_ms", "unit_backward_tensor_ms",
/// "sharded_tensor_ms". The root computes before its layers and returns the last one's output.
#include <chrono>
#include <cmath>
#include <fstream>
#include <iostream>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "costmodel/compute/knots.h"
#include "costmodel/model/bucket_assignment.h"
#include "sim/engine/engine.h"
#include "sim/parallel/ddp/ddp_program.h"
#include "sim/parallel/fsdp2/fsdp2_program.h"

using namespace stepsim;

namespace {

constexpr int kRanks = 2;
constexpr double kFloat = 4;  // Bytes.

Duration ms(double value) {
  return Duration(std::llround(value * 1e6));
}

Knots table(const Json& job, const char* name) {
  Knots knots;
  for (const Json& row : job.at(name)) {
    knots.emplace_back(row.at(0).get<double>(), row.at(1).get<double>());
  }
  return knots;
}

std::vector<std::int64_t> elements(const Json& job) {
  return job.at("elements").get<std::vector<std::int64_t>>();
}

/// Forward ops: the root's, then those of the layers; its backward comes last.
TrainedModel model_of(const Json& job) {
  TrainedModel model;
  const std::vector<std::int64_t> sizes = elements(job);
  const auto count = static_cast<int>(sizes.size());
  for (int unit = 0; unit < count; ++unit) {
    const auto u = static_cast<std::size_t>(unit);
    model.parameters.push_back({static_cast<std::int64_t>(kFloat) * sizes[u], "f32"});
    model.shapes.push_back({sizes[u]});
    model.forward_unit.push_back(unit);
    model.backward_unit.insert(model.backward_unit.begin(), unit);
    model.units.push_back({unit});
    model.completes.insert(model.completes.begin(), {unit});
  }
  return model;
}

MicroBatchWork work_of(const Json& layers) {
  MicroBatchWork batch;
  const auto kernel = [](double time) { return Kernel{Duration(0), ms(time)}; };
  batch.forward.push_back(kernel(0));
  for (const Json& layer : layers) {
    batch.forward.push_back(kernel(layer.at(0)));
    batch.backward.insert(batch.backward.begin(), kernel(layer.at(1)));
  }
  batch.backward.push_back(kernel(0));
  return batch;
}

StepPrices prices_of(const Json& job) {
  StepPrices prices;
  const Knots copy = table(job, "copy");
  const double optimizer = job.at("optimizer_ms");
  prices.elements = [=](OpClass op, std::int64_t count, double) {
    const double bytes = kFloat * static_cast<double>(count);
    return Kernel{Duration(0), ms(op == OpClass::Optimizer ? optimizer : interpolate(copy, bytes))};
  };
  prices.memory = [=](double bytes, double) {  // A copy reads and writes.
    return Kernel{Duration(0), ms(interpolate(copy, bytes / 2))};
  };
  const Knots gather = table(job, "all_gather");
  const Knots scatter = table(job, "reduce_scatter");
  const Knots reduce = table(job, "all_reduce");
  prices.transfer = [=](CollectiveKind kind, double bytes, const RankGroup&) {
    return ms(interpolate(kind == CollectiveKind::AllGather       ? gather
                          : kind == CollectiveKind::ReduceScatter ? scatter
                                                                  : reduce,
                          bytes));
  };
  if (job.at("kind") == "fsdp2") {
    prices.unit_host = {ms(job.at("unit_forward_ms")),
                        ms(job.at("unit_forward_tensor_ms")),
                        ms(job.at("unit_backward_ms")),
                        ms(job.at("unit_backward_tensor_ms")),
                        ms(job.at("sharded_tensor_ms"))};
  }
  return prices;
}

StepWork step_of(const Json& job) {
  StepWork step;
  step.ranks.resize(kRanks);
  for (const Json& micro_batch : job.at("work_ms")) {
    for (std::size_t rank = 0; rank < step.ranks.size(); ++rank) {
      step.ranks[rank].micro_batches.push_back(work_of(micro_batch.at(rank)));
      step.ranks[rank].owned_elements = 1;  // The optimizer has a stated time.
    }
    Iteration iteration;
    iteration.uses_rebuilt = true;
    iteration.synchronises = step.iterations.size() + 1 == job.at("work_ms").size();
    iteration.launching = iteration.synchronises ? Launching::ByHooks : Launching::None;
    step.iterations.push_back(iteration);
  }
  return step;
}

std::vector<ShardUnit> units_of(const Json& job) {
  const std::vector<std::int64_t> sizes = elements(job);
  std::vector<ShardUnit> units(sizes.size());
  const int forward = job.at("forward_prefetch");
  const int backward = job.at("backward_prefetch");
  const auto count = static_cast<int>(sizes.size());
  for (int unit = 0; unit < count; ++unit) {
    ShardUnit& own = units[static_cast<std::size_t>(unit)];
    own.tensors = {{"", {sizes[static_cast<std::size_t>(unit)]}}};
    const bool is_root = unit == 0;
    own.reshard_after_forward =
        is_root ? job.at("root_freed").get<bool>() : !job.at("layers_kept").get<bool>();
    own.returns_inner_output = is_root;
    for (int ahead = 1; ahead <= forward && unit + ahead < count; ++ahead) {
      own.forward_prefetch.push_back(unit + ahead);
    }
    for (int ahead = 1; ahead <= backward && !is_root && unit - ahead > 0; ++ahead) {
      own.backward_prefetch.push_back(unit - ahead);
    }
  }
  return units;
}

StepProgram fsdp2_of(const Json& job, std::vector<Communicator>& communicators) {
  Fsdp2Options options;
  options.mesh = {kRanks, 1, false};
  options.async_unshard = job.at("async");
  const std::string accumulate = job.at("accumulate");
  const StepWork step = step_of(job);
  for (std::size_t m = 0; m + 1 < step.iterations.size() && accumulate != "reduce"; ++m) {
    ShardSwitches switches;
    switches.gradient_sync = false;
    switches.reshard_after_backward = accumulate != "keep_no_sync";
    options.switches.push_back(switches);
  }
  communicators = fsdp2_communicators(options, 0, true);
  return fsdp2_program(model_of(job), units_of(job), options, {true, true}, prices_of(job), step);
}

StepProgram ddp_of(const Json& job, std::vector<Communicator>& communicators) {
  const TrainedModel model = model_of(job);
  BucketLists buckets;
  std::vector<int> ready;
  for (const std::vector<int>& done : model.completes) {
    ready.insert(ready.end(), done.begin(), done.end());
  }
  buckets.rebuilt =
      rebuilt_buckets(model.parameters, ready, kDefaultFirstBucketBytes, kDefaultBucketCapBytes);
  buckets.initial = buckets.rebuilt;
  const DdpOptions options;
  communicators = ddp_communicators(options, true, kRanks);
  return ddp_program(model, buckets, options, {true, true}, prices_of(job), step_of(job));
}

double played_ms(const Json& job) {
  EngineRules rules;
  const StepProgram program = job.at("kind") == "ddp" ? ddp_of(job, rules.communicators)
                                                      : fsdp2_of(job, rules.communicators);
  const std::vector<RankClock> clocks(kRanks);
  Engine engine(rules, clocks);
  double end = 0;
  for (const auto& rank : engine.play(program.program).ranks) {
    const auto time = rank.device_end.time_since_epoch();
    end = std::max(end, std::chrono::duration<double, std::milli>(time).count());
  }
  return end;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: sleepers JOBS.json\n";
    return 2;
  }
  try {
    std::ifstream file(argv[1]);
    for (const Json& job : Json::parse(file)) {
      std::cout << played_ms(job) << '\n';
    }
  } catch (const Json::exception& error) {
    std::cerr << argv[1] << ": " << error.what() << '\n';
    return 2;
  }
  return 0;
}
