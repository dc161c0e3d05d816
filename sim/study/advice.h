#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "costmodel/base/progress_callback.h"
#include "costmodel/records/profile.h"
#include "sim/predict/prediction.h"
#include "sim/predict/run/jobs.h"
#include "sim/scenario/scenario.h"
#include "sim/scenario/setting.h"
#include "sim/study/blame.h"
#include "sim/study/recommendation.h"

namespace stepsim {

/// Run records to fit a profile to.
struct RecordsToFit {
  std::vector<std::string> records;  ///< Files; those of single ranks are joined.
  std::vector<std::string> plans;    ///< Files of what they ran; empty: the records tell it.
  std::string base;                  ///< The file of a profile with all-reduce times; empty: none.
  std::string out;                   ///< The file that the profile goes to, which names it.
};

/// A profile of run records.
// NOLINTNEXTLINE(bugprone-exception-escape): moving an ordered_json is not marked noexcept.
struct FittedRecords {
  Profile profile;
  std::string report;  ///< How well it fits, for a file.
};

/// Fits a profile to run records; writes nothing. Raises InputError where they allow no fit.
using FitRecords = std::function<FittedRecords(const RecordsToFit& records)>;

/// What advice is asked for. Files are empty where there are none.
struct AdviceQuestion {
  std::vector<std::string> records;  ///< As RecordsToFit has them, and plans and base.
  std::vector<std::string> plans;
  std::string base;
  std::string lengths;  ///< A file of the tokens of each sample of the data set.
  std::string config;   ///< As StatedFlops has it, and the next two.
  std::optional<double> flops_per_token;
  std::optional<double> peak_tflops;
  /// Keeps what is made on the way; it is made where it is missing.
  std::string folder = "advice";
  std::optional<double> price_per_hour;  ///< Of all ranks together, in any currency.
  std::optional<double> gpu_hour;        ///< The same of one rank; at most one of the two.
  double epochs = 1;                     ///< To say the time of.
};

/// One bucket cap of the best policy.
struct CapStep {
  Bytes cap;
  double step_ms = 0;      ///< Without noise; 0: not priced.
  std::string not_priced;  ///< Why the profile cannot price it; else empty.
};

/// The bucket cap that is worth setting, if any is.
struct CapAdvice {
  std::vector<CapStep> caps;  ///< Ascending; one when the cap has no effect.
  Bytes own;                  ///< The scenario's.
  Bytes best;                 ///< The shortest step; of equal ones the own.
  Gain gain;                  ///< Of the best over the own.
};

/// One way to share a training among its ranks.
struct ShardingStep {
  std::string name;               ///< "as recorded", "parameters kept", "root freed, too", "ddp"
  std::vector<Setting> settings;  ///< What it sets in the scenario.
  double step_ms = 0;
  double memory_mib = 0;   ///< The peak of one rank without what the record does not tell.
  bool fits = true;        ///< Into the profile's memory, where that is known.
  Gain gain;               ///< Over what was recorded.
  std::string not_priced;  ///< Why the profile cannot price it; else empty.
};

/// One way to train: as now, or with another bucket cap or sharding, other batches, or both.
struct AdviceOption {
  /// "now", "other bucket cap", "other sharding", "other batches", "rival batches" or "both".
  std::string change;
  Bytes cap;
  Prediction prediction;     ///< With the policy's name.
  Gain gain;                 ///< Over now.
  std::string sharding;      ///< In place of the cap, where nothing has buckets.
  std::size_t cap_list = 0;  ///< The scenario's ddp.bucket_caps, in place of the cap; 0: none.
  std::optional<double> rank_flops = {};  ///< As TrainingPlan has them.
  std::optional<double> mfu = {};
};

/// The mean of one record's steady steps.
struct RecordedMean {
  std::string file;
  double mean_ms = 0;
  bool counts = false;  ///< It is of the first record's policy.
};

/// The steady steps of the records of the first one's policy.
struct RecordedSteps {
  double mean_ms = 0;
  double median_ms = 0;
  /// The computing thread had a processor in this share of the time of forward and backward;
  /// absent where the record does not say.
  std::optional<double> processor_share;
  std::vector<RecordedMean> files = {};  ///< [record]
};

/// What `stepsim advise` found out about a training.
struct Advice {
  std::vector<Prediction> predictions;  ///< [policy]
  std::string recorded;                 ///< The policy that runs now; the first where unknown.
  RecordedSteps steps;                  ///< Its steps as they were recorded.
  StallNoise stalls;                    ///< What now and then holds up a step, in all figures.
  CrowdedMachine crowded;               ///< What other programs took while it was recorded.
  CapAdvice caps;                       ///< Of the best policy; of DDP only.
  std::vector<ShardingStep> shardings;  ///< Of the best policy; of fully_shard only.
  /// What runs now first; only what differs from it, and the rival of the best policy.
  std::vector<AdviceOption> options;
  Blame blame;                           ///< Of the recorded policy.
  std::int64_t samples = 0;              ///< Of the whole data set.
  double mean_length = 0;                ///< Tokens of a sample.
  std::optional<double> price_per_hour;  ///< Of all ranks together, in any currency.
  double epochs = 1;                     ///< To say the time of.
};

/// The records as a scenario and its profile, ready to be predicted.
// NOLINTNEXTLINE(bugprone-exception-escape): moving an ordered_json is not marked noexcept.
struct AdviceCase {
  std::string file;     ///< The scenario's.
  bool edited = false;  ///< The user has edited it, and so it was kept.
  bool plays = false;   ///< The batches of the first record are kept, too, and played.
  Scenario scenario;
  Profile profile;
  std::shared_ptr<Jobs> jobs;         ///< Of the scenario.
  Advice known;                       ///< What the records tell, before anything is predicted.
  std::vector<std::string> warnings;  ///< What is odd about the records.
};

/// Makes the files of a training's folder from its records: profile.json, profile.txt (how well it
/// fits), scenario.toml, scenario.made.toml, recorded.jsonl, config.json where the model has one,
/// and lengths.json or lengths.txt. A scenario.toml that the user has edited stays, and is the one
/// that is read. Raises InputError: files that cannot be read; "no profile of these records" with
/// the reason of `fit`. Raises EnvironmentFault: files that cannot be written.
[[nodiscard]] AdviceCase advice_case(const AdviceQuestion& question, const FitRecords& fit);

/// Predicts all policies of a case, the bucket caps of what runs now and of the best policy (under
/// fully_shard other shardings of the best policy), and what the recorded steps are spent on.
/// `on_progress` may throw to end it. Raises InputError: a cost that the profile lacks.
[[nodiscard]] Advice advise(const AdviceCase& training, const ProgressCallback& on_progress = {});

/// Predicts a policy of a scenario under fully_shard as it stands, with units kept or all freed
/// after their forward, and under DDP. Empty for other kinds, and where the profile's passes have
/// the communication inside, which no other sharding can be told from.
/// Raises InputError: the unchanged scenario cannot be priced.
[[nodiscard]] std::vector<ShardingStep> sharding_steps(Jobs& jobs,
                                                       const std::string& policy,
                                                       const ProgressCallback& on_progress);

/// The fastest one that fits, and is surely faster than what was recorded; else the first.
[[nodiscard]] const ShardingStep& best_sharding(const std::vector<ShardingStep>& steps);

/// One epoch of a policy.
struct EpochTime {
  double steps = 0;
  double hours = 0;
};

/// The steps that the samples of the whole data set take, and the time that its useful tokens
/// take: policies compare by it as by useful tokens per second.
[[nodiscard]] EpochTime epoch_time(const Advice& advice, const Prediction& prediction);

/// The prediction of what runs now.
[[nodiscard]] const Prediction& current_of(const Advice& advice);

/// The policy that is worth a benchmark beside the recommended one, which is not surely the
/// fastest; null where it is.
[[nodiscard]] const Choice* rival_of(const Recommendation& recommendation);

}  // namespace stepsim
