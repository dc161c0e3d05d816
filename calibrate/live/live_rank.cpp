#include "calibrate/live/live_rank.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <thread>

#include <nlohmann/json.hpp>

#include "calibrate/live/emulated_ranks.h"
#include "calibrate/live/schedule.h"
#include "calibrate/live/step_line.h"
#include "calibrate/measure/measure_rank.h"
#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"

namespace stepsim {
namespace {

constexpr int kWarmUpSteps = 4;
/// While the parent reads what the ranks sent, they sleep, so that it takes no time from a step.
constexpr auto kReadingPause = std::chrono::milliseconds(2);

StepRecord record_of(const BatchShape& shape, const TrainedStep& trained) {
  StepRecord record;
  record.samples = shape.samples;
  record.max_length = shape.max_length;
  record.useful_tokens = shape.useful_tokens;
  record.padded_tokens = shape.padded_tokens();
  record.start_ms = trained.start * 1e3;
  record.data_ms = trained.data * 1e3;
  record.forward_ms = trained.forward * 1e3;
  record.backward_ms = trained.backward * 1e3;
  record.wait_ms = trained.wait * 1e3;
  record.optimizer_ms = trained.optimizer * 1e3;
  record.step_ms = (trained.end - trained.start) * 1e3;
  record.thread_cpu_ms = trained.thread_cpu * 1e3;
  record.loss = trained.loss;
  for (const TrainedStep::Bucket& bucket : trained.buckets) {
    record.buckets.push_back({bucket.bytes, bucket.launch * 1e3, bucket.end * 1e3});
  }
  return record;
}

class LiveRank {
 public:
  LiveRank(const RankContext& context,
           const BackendFactory& factory,
           const std::vector<Plan>& plans,
           const LiveOptions& options)
      : context_(context),
        plans_(plans),
        options_(options),
        backend_(factory(context, plans[0].model, plans[0].initial_buckets)) {
    if (options.emulated_transfer) {
      emulated_.emplace(*backend_, plans[0].ranks, options.emulated_transfer);
    }
    const int first = emulated_ ? 0 : context.rank();
    const int end = emulated_ ? plans[0].ranks : first + 1;
    for (const Plan& plan : plans) {
      auto& of_step = batches_.emplace_back(static_cast<std::size_t>(plan.steps));
      for (int rank = first; rank < end; ++rank) {
        const std::vector<const MicroBatch*> batches = batches_of(plan, rank);
        for (std::size_t step = 0; step < of_step.size(); ++step) {
          of_step[step].push_back(batches[step]);
        }
      }
    }
  }

  void run() {
    if (context_.rank() == 0) {
      context_.send(std::string(kDescriptionMark) + backend_->description().dump());
    }
    touch_memory();
    warm_up();
    const std::vector<int> steps = mapped(plans_, &Plan::steps);
    int round_number = 0;
    for (int repeat = 0; repeat < options_.repeats; ++repeat) {
      for (const auto& round : rounds_of(steps, options_.block, repeat)) {
        for (const Block& block : round) {
          use_buckets(plans_[block.plan].buckets);
          for (int step = block.begin; step < block.end; ++step) {
            for (const LiveLine& line : timed_step(block.plan, step, repeat)) {
              lines_.push_back(format_line(line));
            }
          }
        }
        finish_round(round_number++);
      }
    }
  }

 private:
  /// What takes long is built, and the largest batches run once, without communication: a step that
  /// builds something or grows a buffer is a slow step. A batch that cannot run is said now.
  void touch_memory() {
    std::vector<StepBatch> all;
    const MicroBatch* most_tokens = batches_[0][0][0];
    const MicroBatch* most_scores = batches_[0][0][0];
    const auto scores = [](const MicroBatch& batch) {
      const BatchShape shape = batch.shape();
      return shape.padded_tokens() * shape.max_length;
    };
    for (const auto& steps : batches_) {
      for (const auto& ranks : steps) {
        for (const MicroBatch* batch : ranks) {
          all.push_back({batch->attended(), batch->padded_length});
          if (batch->shape().padded_tokens() > most_tokens->shape().padded_tokens()) {
            most_tokens = batch;
          }
          if (scores(*batch) > scores(*most_scores)) {
            most_scores = batch;
          }
        }
      }
    }
    const std::vector<std::int64_t> sentinel = sentinel_lengths(plans_[0].model);
    all.push_back({sentinel, 0});
    for (const RefusedBatch& refused : backend_->prepare(all)) {
      const StepBatch& batch = all[refused.index];
      throw EnvironmentFault(
          "a step of {} samples of up to {} tokens cannot run here: {}",
          batch.lengths.size(),
          std::max(batch.padded_length, *std::ranges::max_element(batch.lengths)),
          refused.why);
    }
    for (const MicroBatch* batch : {most_tokens, most_scores}) {
      backend_->warm_up(
          batch->padded_length > 0
              ? std::vector<std::int64_t>(batch->attended().size(), batch->padded_length)
              : batch->attended());
    }
    backend_->barrier();
  }

  void warm_up() {
    bool first = true;
    for (std::size_t plan = 0; plan < plans_.size(); ++plan) {
      for (int step = 0; step < std::min(kWarmUpSteps, plans_[plan].steps); ++step) {
        if (!first) {
          use_buckets(plans_[plan].buckets);
        }
        first = false;
        static_cast<void>(timed_step(plan, step, 0));
      }
    }
    backend_->barrier();
  }

  void use_buckets(const std::vector<std::vector<int>>& buckets) {
    if (buckets != buckets_) {
      backend_->set_buckets(buckets);
      buckets_ = buckets;
    }
  }

  /// One step of this process's ranks.
  std::vector<LiveLine> timed_step(std::size_t plan, int step, int repeat) {
    const auto& batches = batches_[plan][static_cast<std::size_t>(step)];
    const MicroBatch& first = *batches[0];
    const std::vector<TrainedStep> trained =
        emulated_ ? emulated_->train_step(batches)
                  : std::vector<TrainedStep>{backend_->train_step(
                        first.attended(), first.loss_scale, first.padded_length)};
    std::vector<LiveLine> lines;
    for (std::size_t i = 0; i < trained.size(); ++i) {
      LiveLine& line = lines.emplace_back();
      line.plan = static_cast<int>(plan);
      line.step = record_of(batches[i]->shape(), trained[i]);
      line.step.repeat = repeat;
      line.step.step = step;
      line.step.rank = batches[i]->rank;
    }
    return lines;
  }

  void finish_round(int round) {
    LiveLine sentinel;
    sentinel.is_sentinel = true;
    sentinel.plan = round;
    const std::optional<double> seconds =
        time_steps(*backend_, sentinel_lengths(plans_[0].model), kSentinelRepetitions);
    if (seconds) {
      sentinel.sentinel_ms = 1e3 * *seconds;
      lines_.push_back(format_line(sentinel));
    }
    backend_->barrier();
    for (const std::string& line : lines_) {
      context_.send(line);
    }
    lines_.clear();
    std::this_thread::sleep_for(kReadingPause);
    backend_->barrier();
  }

  const RankContext& context_;
  const std::vector<Plan>& plans_;
  const LiveOptions& options_;
  std::unique_ptr<Backend> backend_;
  std::optional<EmulatedRanks> emulated_;
  /// [plan][step] of this process's ranks.
  std::vector<std::vector<std::vector<const MicroBatch*>>> batches_;
  std::vector<std::vector<int>> buckets_;  ///< In use since the first step.
  std::vector<std::string> lines_;
};

}  // namespace

void run_live_rank(const RankContext& context,
                   const BackendFactory& factory,
                   const std::vector<Plan>& plans,
                   const LiveOptions& options) {
  LiveRank(context, factory, plans, options).run();
}

}  // namespace stepsim
