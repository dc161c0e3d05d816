#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "costmodel/compute/cost_model.h"
#include "costmodel/model/memory.h"
#include "costmodel/model/transformer.h"
#include "costmodel/records/plan_file.h"
#include "sim/engine/engine.h"
#include "sim/parallel/key_refusal.h"
#include "sim/parallel/memory_curve.h"
#include "sim/parallel/own_key.h"
#include "sim/parallel/reduce_bound.h"
#include "sim/parallel/step_program.h"

namespace stepsim {

struct DdpOptions;

/// What a kind of parallelism may read of a job. It refers to what the job has.
struct ParallelJob {
  const TransformerConfig& model;
  const DdpOptions& ddp;                          ///< [ddp]
  const OwnValues& own;                           ///< Of the kind's own keys.
  const std::vector<std::int64_t>& buffer_bytes;  ///< [dtype] bytes of the model's buffers.
  int ranks = 1;
  int steps = 0;
  int warmup_steps = 0;
  bool gloo = false;  ///< The host waits for collectives, and two in flight share the links.
  bool model_is_unknown = false;  ///< `model` is none: that of a profile that is not there yet.
  // What is known of the host's own work.
  bool knows_host_copies = false;     ///< host.copy_bandwidth
  bool knows_host_optimizer = false;  ///< host.cpu_optimizer
  bool returns_loss = false;          ///< The loss is inside of the model's forward.
};

/// What all steps of a job are made of.
struct ParallelParts {
  TrainedModel model;
  BucketLists buckets;
  std::vector<std::int64_t> owned;  ///< [rank] Elements of the optimizer's state.
};

/// The units whose hooks a host runs, and their tensors.
struct UnitCount {
  int units = 0;
  int tensors = 0;
};

/// Plain facts of a job under a kind of parallelism.
struct ParallelFacts {
  IterationOptions iterations;
  std::vector<Communicator> communicators;  ///< Of its programs.
  /// Its programs are alike from the third step on, so that the recurrence may play them. It does
  /// where they hold nothing that it does not know; see schedule_of().
  bool repeats = false;
  /// Steps with the same iterations have the same program, but for those of `first_steps`, so that
  /// play_lockstep() may play them.
  bool alike = false;
  /// The first steps whose programs differ from those that follow, where these are alike.
  int first_steps = 0;
  std::string fixed_units;        ///< Why no size of buckets changes a step; empty: it does.
  BoundedWork own_work;           ///< For tune.
  UnitCount host_units;           ///< StepPrices::unit_host is spent on these.
  bool bounds_reduction = false;  ///< Parallelism::reduce_bound() knows this job.
};

/// Work on gradients that stands beside the model's own in a micro-batch, whatever the buckets.
struct GradientWork {
  OpClass op_class = OpClass::GradientCopyIn;
  std::int64_t elements = 0;
  int after = -1;  ///< The op of the backward that it follows; -1: it comes before the forward.
};

/// A key with values that leave the result of training as it is, the scenario's own first.
struct TunedKey {
  std::string key;
  std::vector<std::string> values;
};

/// How ranks train one model together: what is particular to DDP or to another kind. A kind has a
/// folder with all that it owns, and a row in parallelisms.cpp.
class Parallelism {
 public:
  Parallelism() = default;
  virtual ~Parallelism() = default;
  Parallelism(const Parallelism&) = delete;
  Parallelism& operator=(const Parallelism&) = delete;

  [[nodiscard]] virtual std::string_view name() const = 0;
  /// What it is, in a few words of Markdown, and its keys in [parallel] beside `kind`.
  [[nodiscard]] virtual std::string meaning() const = 0;
  [[nodiscard]] virtual std::vector<OwnKey> keys() const { return {}; }
  /// What of [ddp] and of its own keys it refuses.
  [[nodiscard]] virtual std::optional<KeyRefusal> refusal(const ParallelJob& job) const = 0;
  [[nodiscard]] virtual ParallelFacts facts(const ParallelJob& job) const = 0;
  /// Its units of communication, as reports list them.
  [[nodiscard]] virtual BucketLists buckets(const ParallelJob& job) const = 0;
  /// `ops`: those of the job's step, with layers that are computed again.
  [[nodiscard]] virtual ParallelParts parts(const ParallelJob& job, const StepOps& ops) const = 0;
  /// One optimizer step of all ranks. Throws std::invalid_argument when the work does not fit the
  /// model.
  [[nodiscard]] virtual StepProgram program(const ParallelJob& job,
                                            const ParallelParts& parts,
                                            const StepHost& host,
                                            const StepPrices& prices,
                                            const StepWork& step) const = 0;
  /// What a rank keeps: shards, buckets, what is gathered. All else is as by default.
  [[nodiscard]] virtual MemoryOptions memory(const ParallelJob& job) const = 0;
  /// The same as a curve over the step, where the kind knows it. `ops` as for parts(). Of many
  /// micro-batches the first, one between and the last stand for all.
  [[nodiscard]] virtual HeldCurve memory_curve(const ParallelJob& job, const StepOps& ops) const {
    (void)job, (void)ops;
    return {};
  }
  /// What the collectives of a step take at least, all but `known` and `streams`. It is asked where
  /// the facts say that it is known.
  [[nodiscard]] virtual ReduceBound reduce_bound(const ParallelJob& job,
                                                 const ParallelParts& parts,
                                                 const BoundPrices& prices) const {
    (void)job, (void)parts, (void)prices;
    return {};
  }
  /// The keys that tune turns where nothing is asked of it.
  [[nodiscard]] virtual std::vector<TunedKey> tuned_keys(const ParallelJob& job) const {
    (void)job;
    return {};
  }
  /// What a sweep over its units of communication is asked for; empty: those are DDP's buckets.
  [[nodiscard]] virtual std::string_view units_sweep() const { return {}; }
  /// What the user of a prediction should know of how it was simulated, beside prices; sentences
  /// without a full stop.
  [[nodiscard]] virtual std::vector<std::string> assumptions(const ParallelJob& job) const {
    (void)job;
    return {};
  }
  /// What the header of a plan says of it, for those who train by the plan.
  [[nodiscard]] virtual PlanDdp plan_header(const ParallelJob& job) const {
    (void)job;
    PlanDdp header;
    header.other_keys = {"parallel"};
    return header;
  }
  /// In the order in which it is done.
  [[nodiscard]] virtual std::vector<GradientWork> gradient_work(const ParallelJob& job,
                                                                const StepOps& ops) const = 0;
};

/// All kinds, the default first.
[[nodiscard]] std::span<const Parallelism* const> parallelisms();

/// The kind of that name. Throws std::logic_error: there is none.
[[nodiscard]] const Parallelism& parallelism_named(std::string_view name);

}  // namespace stepsim
