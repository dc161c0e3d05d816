#include "sim/predict/prediction_notes.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "costmodel/base/mapped.h"
#include "costmodel/compute/host_floor.h"
#include "costmodel/compute/pass_cost.h"
#include "costmodel/model/memory.h"
#include "costmodel/network/collective_cost.h"
#include "sim/predict/other_settings.h"
#include "sim/predict/run/unit_host_times.h"
#include "sim/predict/step_cost.h"

namespace stepsim {
namespace {

void add_varlen_notes(const Run& run, std::vector<Note>& notes) {
  const bool known = prices_empty_blocks(run.profile());
  const bool given = run.scenario().varlen.empty_block_seconds.has_value();
  const bool any = std::ranges::any_of(
      run.planned().different, [](const RunBatch& batch) { return batch.shape.empty_blocks > 0; });
  if (any && !known && !given) {
    notes.emplace_back(EmptyBlocksFree{});
  }
  if (known && given) {
    notes.emplace_back(EmptyBlockKeyUnused{});
  }
}

/// Notes on ops and collectives of sizes that the profile did not measure.
void add_size_notes(const Run& run, std::vector<Note>& notes) {
  SizesNotMeasured unseen;  // "gemm" of "gemm forward".
  for (const ExtrapolationNote& note : run.pricer().notes()) {
    if (note.larger > 1) {
      notes.emplace_back(SizesBeyondMeasured{note.op, note.larger, false});
    }
    if (note.smaller > 1) {
      notes.emplace_back(SizesBeyondMeasured{note.op, note.smaller, true});
    }
    const std::string op_class = note.op.substr(0, note.op.rfind(' '));
    if (note.unseen_shape && (unseen.op_classes.empty() || unseen.op_classes.back() != op_class)) {
      unseen.op_classes.push_back(op_class);
    }
  }
  if (!unseen.op_classes.empty()) {
    notes.emplace_back(std::move(unseen));
  }
}

/// The kind's facts say that it spends time on units, and neither the profile nor the scenario says
/// how much.
void add_unit_host(const Run& run, std::vector<Note>& notes) {
  const HostOptions& host = run.scenario().host;
  const UnitCount units = run.reduced().facts().host_units;
  if (units.units == 0 || run.profile().unit_host ||
      (host.unit_forward && host.unit_backward && host.sharded_tensor)) {
    return;
  }
  const UnitHost usual = unit_host_of(run.scenario(), run.profile(), run.profile().host_is_device);
  const auto ms = [&](const std::optional<Duration>& each,
                      Duration usual_each,
                      const std::optional<Duration>& tensor,
                      Duration usual_tensor) {
    const double unit = to_seconds(each.value_or(usual_each));
    const double more = to_seconds(tensor.value_or(usual_tensor));
    return 1e3 * (unit * units.units + more * units.tensors);
  };
  notes.emplace_back(UnitHostAssumed{
      ms(host.unit_forward, usual.forward, host.unit_forward_tensor, usual.forward_tensor),
      ms(host.unit_backward, usual.backward, host.unit_backward_tensor, usual.backward_tensor),
      ms(Duration(0), Duration(0), host.sharded_tensor, usual.optimizer_tensor)});
}

/// A kind with units of its own has no buckets, whatever [ddp] says of them.
void add_keys_of_buckets(const Run& run, std::vector<Note>& notes) {
  if (run.reduced().facts().fixed_units.empty()) {
    return;
  }
  if (auto keys = chosen_bucket_keys(run.scenario().ddp); !keys.empty()) {
    notes.emplace_back(
        KeysOfBuckets{std::string(run.scenario().parallel->name()), std::move(keys)});
  }
}

/// Notes on prices that the profile's ops have; times of a scenario and recorded steps hold all.
void add_price_notes(const Run& run, std::vector<Note>& notes) {
  const Scenario& scenario = run.scenario();
  const Profile& profile = run.profile();
  if (scenario.times || prices_recorded_model(scenario, profile)) {
    return;
  }
  if (std::string origin = compute_prices_origin(profile); !origin.empty()) {
    notes.emplace_back(PricesNotMeasured{std::move(origin)});
  }
  CostsNothing nothing;
  nothing.launches =
      !profile.host_is_device && profile.launch_seconds == 0 && !scenario.host.launch;
  nothing.interference = !profile.host_is_device && scenario.ranks > 1 && !profile.interference &&
                         !scenario.interference_given;
  if (nothing.launches || nothing.interference) {
    notes.emplace_back(nothing);
  }
}

void add_stated_errors(const Run& run, std::vector<Note>& notes) {
  const Scenario& scenario = run.scenario();
  StatedErrors stated;
  if (scenario.times) {
    stated.times = scenario.times->error;
  }
  if (scenario.all_reduce_table) {
    stated.all_reduce = scenario.all_reduce_table->errors.bias;
  }
  if (scenario.interference_given && scenario.interference.active() && scenario.ranks > 1) {
    stated.interference = scenario.interference_error;
  }
  if (stated.times || stated.all_reduce || stated.interference) {
    notes.emplace_back(stated);
  }
}

void add_times_of_any_batch(const Run& run, std::vector<Note>& notes) {
  if (!run.scenario().times || run.scenario().times->tokens > 0) {
    return;
  }
  const auto tokens = mapped(run.planned().different, [&](const RunBatch& batch) {
    return run.pricer().input_tokens(batch.shape);
  });
  if (!tokens.empty()) {
    const auto [fewest, most] = std::ranges::minmax(tokens);
    notes.emplace_back(TimesOfAnyBatch{fewest, most});
  }
}

void add_default_cap(const Scenario& scenario, std::vector<Note>& notes) {
  const DdpOptions& ddp = scenario.ddp;
  if (scenario.ranks > 1 && ddp.torch == DdpRules::Newest &&
      ddp.bucket_rule == BucketRule::PyTorch && ddp.bucket_caps.empty() &&
      !ddp.first_bucket_cap_stated && ddp.bucket_cap.value() == kDefaultBucketCapBytes &&
      ddp.first_bucket_cap == ddp.bucket_cap) {
    notes.emplace_back(DefaultCapStated{});
  }
}

void add_hook_start(const Scenario& scenario, std::vector<Note>& notes) {
  const CommunicationHook hook = scenario.ddp.hook;
  const std::int64_t start = scenario.ddp.hook_options.start_iteration;
  if (scenario.ranks > 1 && takes_option(hook, "start_iteration") &&
      start > scenario.warmup_steps) {
    notes.emplace_back(
        HookNotStarted{std::string(name_of(hook)), start, scenario.steps, scenario.warmup_steps});
  }
}

/// Says so where recorded costs of a small batch leave the host of a GPU less time than it needs.
void add_host_floor(const Run& run, std::vector<Note>& notes) {
  const auto floor = host_floor(run.scenario(), run.profile());
  if (!floor) {
    return;
  }
  const RecordedModel recorded =
      at_ranks(*run.profile().recorded, run.scenario().ranks, run.scenario().placement.fullest());
  const bool varlen = recorded.model.attention == AttentionKind::Varlen;
  const auto passes_of = [&](const BatchShape& batch) {
    return std::pair(
        pass_seconds(recorded.forward, recorded.forward.coefficients, batch, varlen),
        pass_seconds(recorded.backward, recorded.backward.coefficients, batch, varlen));
  };
  const auto timed = passes_of(floor->smallest);
  const auto least_ms = [&](double factor) {
    return 1e3 * ((floor->forward(factor, timed.first) + floor->backward(factor, timed.second)) /
                      floor->speed +
                  floor->optimizer);
  };
  std::optional<BelowHostFloor> shortest;
  for (const RunBatch& batch : run.planned().different) {
    const auto [forward, backward] = passes_of(batch.shape);
    const double costs_ms = 1e3 * ((forward + backward) / floor->speed + floor->optimizer);
    constexpr double kClearly = 0.99;
    if (batch.shape.samples > 0 && costs_ms < kClearly * least_ms(HostFloor::kHigh) &&
        (!shortest || costs_ms < shortest->costs_ms)) {
      shortest = BelowHostFloor{floor->tensors,
                                costs_ms,
                                std::max(costs_ms, least_ms(1)),
                                least_ms(HostFloor::kLow),
                                least_ms(HostFloor::kHigh)};
    }
  }
  if (shortest) {
    notes.emplace_back(*shortest);
  }
}

/// Says so where the kernels of a micro-batch, priced one by one, are shorter than their launches.
void add_host_bound(const Run& run, std::vector<Note>& notes) {
  const Scenario& scenario = run.scenario();
  const Profile& profile = run.profile();
  if (scenario.times || profile.host_is_device || prices_recorded_model(scenario, profile)) {
    return;
  }
  constexpr double kEagerLaunch = 5e-6;  // PyTorch's eager mode takes 4 to 10 us an operation.
  HostBound bound;
  bound.kernels = run.pricer().ops_per_micro_batch();
  bound.launch_seconds =
      scenario.host.launch ? to_seconds(*scenario.host.launch) : profile.launch_seconds;
  bound.launch_assumed = bound.launch_seconds == 0;
  if (bound.launch_assumed) {
    bound.launch_seconds = kEagerLaunch;
  }
  bound.compute_ms = run.priced().kernel_seconds() * 1e3;
  if (static_cast<double>(bound.kernels) * bound.launch_seconds * 1e3 >= bound.compute_ms) {
    notes.emplace_back(bound);
  }
}

/// Tells whether a gather or scatter of shards is priced from an all-reduce, which stands in a
/// table of its own: what fully sharded training is made of was not measured then.
bool is_shared_by_ring(const std::string& origin) {
  return std::ranges::any_of(std::array{CollectiveKind::AllGather, CollectiveKind::ReduceScatter},
                             [&](CollectiveKind kind) {
                               return origin.starts_with(fmt::format(
                                   "{}: {}", name_of(kind), name_of(CollectiveKind::AllReduce)));
                             });
}

}  // namespace

void add_notes(const Run& run, Prediction& prediction) {
  std::vector<Note>& notes = prediction.notes;
  add_host_floor(run, notes);
  const CrowdedMachine& crowded = run.profile().noise.crowded;
  if (crowded.is_crowded() && prices_recorded_model(run.scenario(), run.profile())) {
    notes.emplace_back(RecordedBesideOthers{crowded.slowed});
  }
  add_price_notes(run, notes);
  add_unit_host(run, notes);
  for (std::string& text : run.scenario().parallel->assumptions(parallel_job(run.scenario()))) {
    notes.emplace_back(AssumedOfKind{std::move(text)});
  }
  add_keys_of_buckets(run, notes);
  if (auto differences = other_settings(run.scenario(), run.profile()); !differences.empty()) {
    notes.emplace_back(OtherSettings{std::move(differences)});
  }
  add_size_notes(run, notes);
  if (is_varlen(run.scenario())) {
    add_varlen_notes(run, notes);
  }
  if (run.takes_measured_interference()) {
    const InterferenceProfile& measured = *run.profile().interference;
    notes.emplace_back(ProfileInterference{measured.samples, measured.value});
  }
  if (prices_recorded_model(run.scenario(), run.profile()) && run.profile().recorded->whole_steps) {
    notes.emplace_back(CollectivesInsidePasses{});
  }
  if (!states_activations(run.scenario().model) && prediction.summary.peak_memory_mib > 0) {
    notes.emplace_back(ActivationsNotCounted{run.scenario().model.tokens_unknown});
  }
  if (prediction.out_of_memory) {
    notes.emplace_back(*prediction.out_of_memory);
  }
  add_times_of_any_batch(run, notes);
  if (const auto moved = elements_moved_by_sgd(run.scenario(), run.profile())) {
    notes.emplace_back(OptimizerOfAdamw{*moved});
  }
  add_default_cap(run.scenario(), notes);
  add_hook_start(run.scenario(), notes);
  add_stated_errors(run, notes);
  add_host_bound(run, notes);
  for (const auto& [text, source] : run.pricer().collective_sources()) {
    prediction.collective_origins.push_back({text, source});
    const bool is_known = source == CollectiveSource::MeasuredTable ||
                          source == CollectiveSource::FittedLinks ||
                          source == CollectiveSource::OneRank;  // There is nothing to measure.
    if (!is_known || is_shared_by_ring(text)) {
      notes.emplace_back(CollectiveNotMeasured{prediction.collective_origins.back()});
    }
  }
}

}  // namespace stepsim
