#include "calibrate/import/kineto/kineto_record.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "calibrate/import/kineto/kineto_batches.h"
#include "calibrate/import/kineto/kineto_dims.h"
#include "calibrate/import/kineto/kineto_names.h"
#include "calibrate/import/kineto/kineto_passes.h"
#include "calibrate/import/kineto/kineto_times.h"
#include "costmodel/base/index.h"
#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "costmodel/io/json_file.h"

namespace stepsim {
namespace {

/// The index of the step of this number; -1 unless the trace holds it once.
int step_of_number(const KinetoTrace& trace, std::int64_t number) {
  const auto found = std::ranges::find(trace.steps, number, &KinetoStep::number);
  const bool once = std::ranges::count(trace.steps, number, &KinetoStep::number) == 1;
  return once ? static_cast<int>(found - trace.steps.begin()) : -1;
}

std::vector<const KinetoCollective*> buckets_in(const KinetoTrace& trace, int step) {
  std::vector<const KinetoCollective*> buckets;
  for (const KinetoCollective& one : trace.collectives) {
    if (one.bucket && one.step == step) {
      buckets.push_back(&one);
    }
  }
  return buckets;
}

bool runs_on_gpu(const KinetoTrace& trace) {
  return !trace.streams.empty();
}

/// Gradients of a step's last backward pass, in the order in which they were there.
std::vector<const KinetoTensor*> gradients_of(const KinetoTrace& trace, const KinetoPass& pass) {
  std::vector<const KinetoTensor*> gradients;
  for (const KinetoTensor& tensor : trace.tensors) {
    // A gradient that is not there has no type.
    if (tensor.of == KinetoTensorOf::Gradient && !tensor.dtype.empty() &&
        tensor.start_ns >= pass.backward_ns && tensor.start_ns < pass.backward_end_ns) {
      gradients.push_back(&tensor);
    }
  }
  return gradients;
}

std::int64_t bytes_of(const std::vector<const KinetoTensor*>& gradients) {
  return sum_of(gradients, [](const KinetoTensor* one) {
    return elements_in(one->dims) * element_bytes(one->dtype).value_or(0);
  });
}

std::int64_t bytes_of(const std::vector<const KinetoCollective*>& buckets) {
  return sum_of(buckets, [](const KinetoCollective* one) { return one->bytes.value_or(0); });
}

/// "f32" for "float32", as a record names it.
std::string short_dtype(const std::string& dtype) {
  for (const auto& [lead, letter] : {std::pair("bfloat", "bf"), std::pair("float", "f")}) {
    if (dtype.starts_with(lead)) {
      return letter + dtype.substr(std::string_view(lead).size());
    }
  }
  return dtype;
}

/// The parameters in order of registration, which DDP fills its buckets by from the last one on.
Json model_json(const std::vector<const KinetoTensor*>& gradients) {
  Json parameters = Json::array();
  for (auto one = gradients.rbegin(); one != gradients.rend(); ++one) {
    parameters.push_back({{"name", fmt::format("tensor {}", parameters.size())},
                          {"shape", (*one)->dims},
                          {"dtype", short_dtype((*one)->dtype)}});
  }
  return {{"name", "traced"}, {"parameters", std::move(parameters)}};
}

class RecordMaker {
 public:
  RecordMaker(std::span<const KinetoTrace> traces, const KinetoMatches& matches)
      : traces_(traces), matches_(matches), gpu_(runs_on_gpu(traces.front())) {}

  KinetoRecord make(std::optional<bool> length_first, const std::string& device) {
    result_.problem = find_steps();
    if (result_.problem.empty()) {
      result_.problem = take_batches(length_first);
    }
    if (result_.problem.empty()) {
      result_.problem = take_tensors();
    }
    if (result_.problem.empty()) {
      make_record(device);
    }
    return std::move(result_);
  }

 private:
  [[nodiscard]] const KinetoTrace& trace_of(const KinetoTracedStep& step) const {
    return traces_[step.trace];
  }

  [[nodiscard]] std::int64_t world_size() const {
    return traces_.front().header.world_size.value_or(static_cast<std::int64_t>(traces_.size()));
  }

  /// Keeps the steps whose passes all traces tell; a problem when there are none.
  std::string find_steps() {
    for (const int rank : matches_.ranks) {
      if (rank >= world_size()) {
        return fmt::format(
            "rank {} of {} ranks: the traces do not say how many there were", rank, world_size());
      }
    }
    if (world_size() != static_cast<std::int64_t>(traces_.size())) {
      result_.warnings.push_back(
          fmt::format("only rank{} {} of {} {} a trace here: forward, backward and optimizer are "
                      "theirs, all-reduces are those of --base",
                      traces_.size() > 1 ? "s" : "",
                      fmt::join(matches_.ranks, ", "),
                      world_size(),
                      traces_.size() > 1 ? "have" : "has"));
    }
    std::string problem =
        "there is no ProfilerStep: give torch.profiler.profile a schedule, and call "
        "profiler.step() "
        "once a step";
    std::vector<std::string> left_out;
    for (const KinetoStep& step : traces_.front().steps) {
      std::vector<KinetoTracedStep> ranks;
      std::string own;
      for (std::size_t t = 0; t < traces_.size() && own.empty(); ++t) {
        KinetoTracedStep one;
        one.trace = t;
        one.step = step_of_number(traces_[t], step.number);
        if (one.step < 0) {
          own = fmt::format("the trace of rank {} does not hold it once", matches_.ranks[t]);
        } else {
          one.passes = kineto_passes(traces_[t], one.step);
          one.buckets = buckets_in(traces_[t], one.step);
          own = one.passes.problem;
          ranks.push_back(std::move(one));
        }
      }
      if (own.empty()) {
        steps_.push_back(std::move(ranks));
      } else {
        problem = fmt::format("step {}: {}", step.number, own);
        left_out.push_back(problem);
      }
    }
    if (!steps_.empty()) {
      for (const std::string& one : left_out) {
        result_.warnings.push_back(one + "; left out");
      }
    }
    return steps_.empty() ? problem : "";
  }

  std::string take_batches(std::optional<bool> length_first) {
    std::vector<KinetoForward> forwards;
    for (const auto& ranks : steps_) {
      for (const KinetoTracedStep& one : ranks) {
        const KinetoTrace& trace = trace_of(one);
        for (const KinetoPass& pass : one.passes.micro_batches) {
          forwards.push_back({&trace, trace.steps[at(one.step)].thread, pass});
        }
      }
    }
    KinetoBatches found = kineto_batches(forwards, length_first);
    if (!found.problem.empty()) {
      return found.problem;
    }
    auto next = found.batches.begin();
    for (auto& ranks : steps_) {
      for (KinetoTracedStep& one : ranks) {
        for (std::size_t m = 0; m < one.passes.micro_batches.size(); ++m) {
          one.batches.push_back(*next++);
        }
      }
    }
    result_.notes.push_back(fmt::format(
        "batches are those of {}; how long samples are without padding is not in a trace, so each "
        "counts as long as its batch",
        found.source));
    say_shapes(std::set(found.batches.begin(), found.batches.end()));
    return "";
  }

  void say_shapes(const std::set<KinetoBatch>& shapes) {
    constexpr std::size_t kMost = 8;
    std::vector<std::string> texts;
    for (const KinetoBatch& shape : shapes) {
      if (texts.size() < kMost) {
        texts.push_back(fmt::format("{} x {}", shape.samples, shape.length));
      }
    }
    if (shapes.size() > 1) {
      result_.notes.push_back(fmt::format("{} different batches, samples x length: {}{}",
                                          shapes.size(),
                                          fmt::join(texts, ", "),
                                          shapes.size() > kMost ? ", …" : ""));
    } else {
      result_.warnings.push_back(fmt::format(
          "all batches of the traces are alike ({}, samples x length): they tell nothing of other "
          "shapes, whose cost is a guess by operations and bytes; trace a policy whose batches "
          "differ",
          texts.front()));
    }
  }

  /// Finds the tensors by the gradients of the last step. Steps whose buckets differ from those of
  /// most steps are left out: DDP makes its buckets anew after its first step, and the threads of
  /// gloo may begin two all-reduces in the other order.
  std::string take_tensors() {
    const auto sizes = [](const KinetoTracedStep& step) {
      return mapped(step.buckets, [](const KinetoCollective* one) { return one->bytes; });
    };
    std::map<std::vector<std::optional<std::int64_t>>, int> counts;
    for (const auto& ranks : steps_) {
      ++counts[sizes(ranks.front())];
    }
    auto wanted = sizes(steps_.back().front());
    for (const auto& [buckets, count] : counts) {
      if (count > counts[wanted]) {
        wanted = buckets;
      }
    }
    for (auto ranks = steps_.begin(); ranks != steps_.end();) {
      if (std::ranges::all_of(*ranks,
                              [&](const KinetoTracedStep& one) { return sizes(one) == wanted; })) {
        ++ranks;
        continue;
      }
      const KinetoTracedStep& one = ranks->front();
      result_.warnings.push_back(
          fmt::format("step {}: other buckets, or in another order, than in most steps; left out",
                      trace_of(one).steps[at(one.step)].number));
      ranks = steps_.erase(ranks);
    }
    if (steps_.empty()) {
      return "the ranks do not have the same buckets";
    }
    const KinetoTracedStep& last = steps_.back().front();
    gradients_ = gradients_of(trace_of(last), last.passes.micro_batches.back());
    if (gradients_.empty()) {
      return "no gradient is accumulated in the backward pass, so that the model's tensors are not "
             "known";
    }
    for (const KinetoTensor* one : gradients_) {
      if (one->dtype != gradients_.front()->dtype) {
        return fmt::format("gradients are of {} and {}; only models of one type are known",
                           printable(gradients_.front()->dtype),
                           printable(one->dtype));
      }
    }
    if (world_size() == 1 && last.buckets.empty()) {
      return "";
    }
    if (last.buckets.empty()) {
      return "the traces name no all-reduce of a bucket of DistributedDataParallel";
    }
    const std::int64_t reduced = bytes_of(last.buckets);
    const std::int64_t held = bytes_of(gradients_);
    return reduced == held ? ""
                           : fmt::format(
                                 "step {}: gradients have {} bytes and its buckets {}: is a "
                                 "communication hook or several reductions a step at work?",
                                 trace_of(last).steps[at(last.step)].number,
                                 held,
                                 reduced);
  }

  void make_record(const std::string& device) {
    RunRecord record;
    const KinetoHeader& header = traces_.front().header;
    record.world_size = static_cast<int>(world_size());
    record.backend = !header.backend.empty() ? header.backend : gpu_ ? "nccl" : "gloo";
    record.device = !header.device.empty() ? header.device
                    : !device.empty()      ? device
                                           : "not stated in the trace";
    *record.versions = {{"source", "traces of PyTorch's profiler"}};
    if (gpu_) {
      (*record.versions)["cuda"] = nullptr;
    }
    (*record.training)["model"] = model_json(gradients_);
    KinetoIdle idle;
    for (std::size_t s = 0; s < steps_.size(); ++s) {
      add_step(static_cast<int>(s), steps_[s], record, idle);
    }
    for (const StepRecord& row : record.steps) {
      if (!(row.forward_ms > 0) || !(row.backward_ms > 0)) {
        result_.problem = fmt::format(
            "rank {} has a step in which nothing was computed forward or backward", row.rank);
        return;
      }
    }
    say_how(idle);
    result_.record = std::move(record);
  }

  void add_step(int number,
                const std::vector<KinetoTracedStep>& ranks,
                RunRecord& record,
                KinetoIdle& idle) {
    const std::size_t first = record.steps.size();
    for (const KinetoTracedStep& one : ranks) {
      const KinetoTrace& trace = trace_of(one);
      const KinetoSpan& span = trace.steps[at(one.step)].span;
      StepRecord row;
      row.step = number;
      row.rank = matches_.ranks[one.trace];
      row.start_ms = kineto_ms(span.start_ns - matches_.shift_ns[one.trace] - zero());
      row.step_ms = kineto_ms(span.duration_ns);
      take_batches_of(one, row);
      if (gpu_) {
        take_gpu_times(trace, one, row, idle);
      } else {
        take_host_times(trace, one, row);
      }
      record.steps.push_back(std::move(row));
    }
    if (gpu_) {
      end_buckets(ranks.front(), std::span(record.steps).subspan(first));
    }
    std::ranges::sort(record.steps.begin() + static_cast<std::ptrdiff_t>(first),
                      record.steps.end(),
                      {},
                      &StepRecord::rank);
  }

  static void take_batches_of(const KinetoTracedStep& one, StepRecord& row) {
    row.micro_batches = std::ssize(one.batches);
    for (const KinetoBatch& batch : one.batches) {
      row.samples += batch.samples;
      row.max_length = std::max(row.max_length, batch.length);
      row.padded_tokens += batch.samples * batch.length;
      row.lengths.insert(row.lengths.end(), at(batch.samples), batch.length);
      if (one.batches.size() > 1) {
        row.micro_batch_samples.push_back(batch.samples);
        row.micro_batch_max_lengths.push_back(batch.length);
      }
    }
    row.useful_tokens = row.padded_tokens;
  }

  /// Lets the ranks of a step begin together and its all-reduces take their transfer time.
  void end_buckets(const KinetoTracedStep& one, std::span<StepRecord> rows) const {
    const double start = std::ranges::min_element(rows, {}, &StepRecord::start_ms)->start_ms;
    for (std::size_t b = 0; b < one.buckets.size(); ++b) {
      double launch = 0;
      for (StepRecord& row : rows) {
        row.start_ms = start;
        launch = std::max(launch, row.buckets[b].launch_ms);
      }
      for (StepRecord& row : rows) {
        row.buckets[b].end_ms = launch + transfer_ms(one.trace, one.buckets[b]);
      }
    }
  }

  [[nodiscard]] double transfer_ms(std::size_t trace, const KinetoCollective* one) const {
    const auto place = static_cast<std::size_t>(one - traces_[trace].collectives.data());
    for (const KinetoMatch& match : matches_.matches) {
      const auto rank = std::ranges::find(match.ranks, matches_.ranks[trace]);
      if (rank != match.ranks.end() && match.places[at(rank - match.ranks.begin())] == place) {
        return std::max(kineto_ms(match.transfer_ns), 0.0);
      }
    }
    return kineto_ms(one->span.duration_ns);
  }

  /// The start of the first rank's first step: times of a record count from there.
  [[nodiscard]] std::int64_t zero() const {
    const KinetoTracedStep& first = steps_.front().front();
    return trace_of(first).steps[at(first.step)].span.start_ns - matches_.shift_ns[first.trace];
  }

  void say_how(const KinetoIdle& idle) {
    const bool named = std::ranges::all_of(steps_, [](const auto& ranks) {
      return std::ranges::all_of(ranks,
                                 [](const KinetoTracedStep& one) { return one.passes.annotated; });
    });
    if (!named && !gpu_) {
      result_.notes.emplace_back(
          "the traces do not name the forward pass: loading the batch counts as a part of it");
    }
    if (!gpu_) {
      result_.warnings.emplace_back(
          "the times are those of a CPU under the profiler, which slows every op: steps without it "
          "are shorter; stepsim_recorder.py measures them");
      return;
    }
    result_.notes.emplace_back(
        "forward, backward and optimizer are the time in which the GPU worked for them");
    constexpr double kMostIdle = 0.1;
    const double share = idle.elapsed_ns > 0 ? 1 - static_cast<double>(idle.busy_ns) /
                                                       static_cast<double>(idle.elapsed_ns)
                                             : 0;
    if (share > kMostIdle) {
      result_.warnings.push_back(fmt::format(
          "the GPU stood still in {:.0f} % of forward and backward, since the host (slowed by the "
          "profiler) launched too late: the profile leaves that out, and a host that is too slow "
          "without the profiler makes longer steps; stepsim_recorder.py measures them",
          100 * share));
    }
  }

  std::span<const KinetoTrace> traces_;
  const KinetoMatches& matches_;
  bool gpu_;
  std::vector<std::vector<KinetoTracedStep>> steps_;  ///< [step][rank]
  std::vector<const KinetoTensor*> gradients_;        ///< Of the last step.
  KinetoRecord result_;
};

}  // namespace

KinetoRecord kineto_record(std::span<const KinetoTrace> traces,
                           const KinetoMatches& matches,
                           std::optional<bool> length_first,
                           const std::string& device) {
  return RecordMaker(traces, matches).make(length_first, device);
}

}  // namespace stepsim
