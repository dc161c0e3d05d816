#include "sim/parallel/zero/zero_program.h"

#include <cstddef>
#include <cstdint>
#include <vector>

#include "costmodel/base/index.h"
#include "costmodel/base/mapped.h"
#include "sim/parallel/rank_program.h"

namespace stepsim {
namespace {

// Streams beside the compute stream.
constexpr std::uint8_t kZeroGathers = 2;
constexpr std::uint8_t kZeroReductions = 3;

constexpr std::size_t kMostUnfinished = 2;  // Gathers, and reductions, that the host is ahead of.

/// What all ranks share.
struct ZeroContext {
  const TrainedModel& model;
  const ZeroOptions& options;
  const StepHost& host;
  const StepPrices& prices;
  const StepWork& step;
  std::vector<ModuleRun> runs = {};
  ModuleTrace unknown = {};  ///< Of the first micro-batches of a training.
  ModuleTrace known = {};
  std::vector<double> padded = {};  ///< [parameter] elements.
  std::vector<std::int64_t> sizes = {};
  double stored = 4;  ///< Bytes of an element: of the shard,
  double gathered = 4;
  double reduced = 4;
};

class ZeroRankProgram : private RankProgram {
 public:
  ZeroRankProgram(const ZeroContext& context, CollectiveLog& log, StepProgram& program, int rank)
      : RankProgram(context.host, context.prices, context.step, log, program, rank),
        context_(context),
        gather_of_(context.model.parameters.size(), -1) {}

  void build();

 private:
  /// An all-gather on its way.
  struct Gather {
    int collective = -1;
    std::vector<int> parameters;
    bool done = false;  ///< The compute stream has been told to wait for it.
  };

  void pass(const std::vector<Kernel>& kernels, const ModuleTrace& trace, bool backward);
  void enter(const ModuleFetch& fetch);
  void gather(const std::vector<int>& parameters);
  void await_gather(Gather& one);
  void collect(int parameter);
  void reduce();
  void finish_reductions();
  void refresh_parameters();
  void await(int collective, std::uint8_t stream);
  void hold_host(const std::vector<int>& events);
  [[nodiscard]] bool on_cpu() const { return context_.host.is_device; }
  [[nodiscard]] bool is_alone() const { return context_.options.ranks == 1; }
  [[nodiscard]] std::uint8_t own(std::uint8_t stream) const {
    return on_cpu() || !context_.options.overlaps ? kComputeStream : stream;
  }
  [[nodiscard]] std::int32_t copy_label(int which) const {
    const std::int32_t first = context_.model.copy_labels;
    return first < 0 ? -1 : first + which;
  }

  const ZeroContext& context_;
  std::size_t run_ = 0;             ///< The next one of the micro-batch.
  std::vector<Gather> gathers_;     ///< Of the micro-batch.
  std::vector<int> gather_of_;      ///< [parameter] Its last gather.
  std::vector<int> fetch_events_;   ///< After each parameter that was waited for.
  std::vector<int> reduce_events_;  ///< After each reduction.
  std::vector<int> bucket_;         ///< Parameters whose gradients wait for their reduction.
  std::int64_t bucket_elements_ = 0;
  bool adds_gradients_ = false;  ///< The shard has gradients of a micro-batch before.
};

void ZeroRankProgram::build() {
  mark(kStepStart);
  if (!on_cpu() && context_.options.overlaps && !is_alone()) {
    event_wait(record(kComputeStream), Phase::Other, kZeroGathers);  // Behind the optimizer.
  }
  const std::size_t count = work().micro_batches.size();
  for (std::size_t m = 0; m < count; ++m) {
    const MicroBatchWork& batch = work().micro_batches[m];
    const std::size_t number = at(context_.step.step) * count + m;
    const ModuleTrace& trace = number < kUnknownBatches ? context_.unknown : context_.known;
    data(batch);
    if (m == 0) {
      mark(kDataEnd);
    }
    run_ = 0;
    gathers_.clear();
    pass(batch.forward, trace, false);
    mark(kForwardEnd);
    pass(batch.backward, trace, true);
    mark(kBackwardEnd);
    finish_reductions();
    adds_gradients_ = true;
  }
  begin_optimizer();
  elements(OpClass::Optimizer, work().owned_elements, Phase::Optimizer);
  refresh_parameters();
  end_step();
}

void ZeroRankProgram::pass(const std::vector<Kernel>& kernels,
                           const ModuleTrace& trace,
                           bool backward) {
  for (std::size_t op = 0; op < kernels.size(); ++op) {
    const bool begins = run_ < context_.runs.size() && context_.runs[run_].backward == backward &&
                        at(context_.runs[run_].first) == op;
    if (begins && !is_alone()) {
      enter(trace.fetches[run_]);
    }
    run_ += begins ? 1 : 0;
    kernel(kernels[op], backward ? Phase::Backward : Phase::Forward);
    if (backward && !is_alone()) {
      for (const int parameter : context_.model.completes[op]) {
        collect(parameter);
      }
    }
  }
}

void ZeroRankProgram::enter(const ModuleFetch& fetch) {
  gather(fetch.fetched);
  for (const int parameter : fetch.awaited) {
    hold_host(fetch_events_);
    await_gather(gathers_[at(gather_of_[at(parameter)])]);
    if (!on_cpu()) {
      fetch_events_.push_back(record(own(kZeroGathers)));
    }
  }
  if (!fetch.awaited.empty() && own(kZeroGathers) != kComputeStream) {
    event_wait(fetch_events_.back(), Phase::Wait);
  }
  gather(fetch.prefetched);
}

/// Shards of several parameters are copied together first.
void ZeroRankProgram::gather(const std::vector<int>& parameters) {
  if (parameters.empty()) {
    return;
  }
  const double all =
      sum_of(parameters, [&](int parameter) { return context_.padded[at(parameter)]; });
  if (parameters.size() > 1) {
    memory(2 * all / context_.options.ranks * context_.gathered,
           Phase::Other,
           own(kZeroGathers),
           copy_label(0));
  }
  for (const int parameter : parameters) {
    gather_of_[at(parameter)] = static_cast<int>(gathers_.size());
  }
  const int number =
      collective({CollectiveKind::AllGather, all * context_.gathered, -1}, own(kZeroGathers));
  gathers_.push_back({number, parameters});
}

/// All parameters of a gather of several are copied to their places, one after another.
void ZeroRankProgram::await_gather(Gather& one) {
  if (one.done) {
    return;
  }
  one.done = true;
  await(one.collective, own(kZeroGathers));
  for (std::size_t i = 0; one.parameters.size() > 1 && i < one.parameters.size(); ++i) {
    memory(2 * context_.padded[at(one.parameters[i])] * context_.gathered,
           Phase::Other,
           own(kZeroGathers),
           copy_label(1));
  }
}

/// A gradient is ready.
void ZeroRankProgram::collect(int parameter) {
  const std::int64_t size = context_.sizes[at(parameter)];
  if (!bucket_.empty() && bucket_elements_ + size > context_.options.reduce_bucket) {
    reduce();
  }
  if (own(kZeroReductions) != kComputeStream) {
    event_wait(record(kComputeStream), Phase::Other, kZeroReductions);
  }
  // A gradient that is larger than the bucket stays where it is.
  if (bucket_elements_ + size <= context_.options.reduce_bucket) {
    memory(2 * static_cast<double>(size) * context_.gathered, Phase::Other, own(kZeroReductions));
  }
  bucket_.push_back(parameter);
  bucket_elements_ += size;
}

void ZeroRankProgram::reduce() {
  if (bucket_.empty()) {
    return;
  }
  hold_host(reduce_events_);
  const std::uint8_t stream = own(kZeroReductions);
  const double all = sum_of(bucket_, [&](int parameter) { return context_.padded[at(parameter)]; });
  const double shard = all / context_.options.ranks;
  if (context_.reduced != context_.gathered) {
    memory(all * (context_.gathered + context_.reduced), Phase::Other, stream);
  }
  memory(2 * all * context_.reduced, Phase::Other, stream);  // To the order of the ranks.
  memory(2 * all * context_.reduced, Phase::Other, stream);  // Divided by their number.
  await(collective({CollectiveKind::ReduceScatter, all * context_.reduced, -1}, stream), stream);
  if (context_.reduced != context_.gathered) {
    memory(shard * (context_.gathered + context_.reduced), Phase::Other, stream);
  }
  memory((adds_gradients_ ? 3 : 2) * shard * context_.gathered, Phase::Other, stream);
  if (!on_cpu()) {
    reduce_events_.push_back(record(stream));
  }
  bucket_.clear();
  bucket_elements_ = 0;
}

void ZeroRankProgram::finish_reductions() {
  reduce();
  if (on_cpu() || reduce_events_.empty()) {
    return;
  }
  event_wait(reduce_events_.back(), Phase::Wait);
  host_event_wait(reduce_events_.back());
  reduce_events_.clear();
}

void ZeroRankProgram::refresh_parameters() {
  if (is_alone()) {
    return;
  }
  if (context_.gathered != context_.stored) {
    memory(static_cast<double>(work().owned_elements) * (context_.stored + context_.gathered),
           Phase::Optimizer);
  }
  int last = -1;
  for (std::size_t parameter = 0; parameter < context_.padded.size(); ++parameter) {
    if (is_persistent(context_.model, context_.options, static_cast<int>(parameter))) {
      last = collective(
          {CollectiveKind::AllGather, context_.padded[parameter] * context_.gathered, -1},
          kComputeStream);
    }
  }
  if (last >= 0) {
    await(last, kComputeStream);
  }
}

void ZeroRankProgram::await(int collective, std::uint8_t stream) {
  if (on_cpu()) {
    wait(collective);
  } else {
    stream_wait(collective, stream);
  }
}

/// The host goes on when at most two of these events are still to come. They come in order.
void ZeroRankProgram::hold_host(const std::vector<int>& events) {
  if (!on_cpu() && events.size() > kMostUnfinished) {
    host_event_wait(events[events.size() - 1 - kMostUnfinished]);
  }
}

}  // namespace

std::int64_t padded_to_ranks(std::int64_t elements, int ranks) {
  return (elements + ranks - 1) / ranks * ranks;
}

StepProgram zero_program(const TrainedModel& model,
                         const ZeroOptions& options,
                         const StepHost& host,
                         const StepPrices& prices,
                         const StepWork& step) {
  StepProgram result = empty_program(model, step);
  result.waits_within = true;
  ZeroContext context{model, options, host, prices, step};
  context.runs = module_runs(model);
  const int micro_batches = static_cast<int>(step.iterations.size());
  if (step.step * micro_batches < kUnknownBatches) {
    context.unknown = module_trace(model, context.runs, options, false);
  }
  context.known = module_trace(model, context.runs, options, true);
  for (int parameter = 0; parameter < static_cast<int>(model.parameters.size()); ++parameter) {
    context.sizes.push_back(model.elements(parameter));
    context.padded.push_back(
        static_cast<double>(padded_to_ranks(context.sizes.back(), options.ranks)));
  }
  const auto size = [](Dtype dtype) { return static_cast<double>(element_size(dtype)); };
  context.stored = static_cast<double>(model.element_bytes);
  context.gathered = options.param_dtype ? size(*options.param_dtype) : context.stored;
  context.reduced = options.reduce_dtype ? size(*options.reduce_dtype) : context.gathered;
  build_ranks<ZeroRankProgram>(context, prices, step, result);
  return result;
}

}  // namespace stepsim
