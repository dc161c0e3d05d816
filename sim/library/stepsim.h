#pragma once

// Stepsim as a library: predictions of the step time of PyTorch's distributed training.
//
//   c++ -std=c++20 program.cpp $(pkg-config --cflags --libs stepsim)
//
//   const stepsim::Job job(stepsim::Scenario::read("token_skew"));
//   for (const char* cap : {"1 MiB", "25 MiB"}) {
//     std::cout << job.predict({{"ddp.bucket_cap", cap}}).step_ms << " ms\n";
//   }
//   std::cout << job.ask("compare").text();
//
// Nothing is printed. Errors are exceptions: InputError where a scenario, file or option is wrong,
// MachineError where a file cannot be written or memory is short. All types are values; copies
// share what they hold. A Job may be used by several threads at once.

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace stepsim::face {

class InputError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class MachineError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A key of the scenario file and its value, as `--set KEY=VALUE` takes it.
struct Setting {
  std::string key;
  std::string value;
};

/// The calibration of one machine.
struct Profile {
  std::string name;
  std::string id;  ///< A check value of what it holds.
  std::string device;
  std::string backend;

  /// `named`: a file, or the name of a shipped one.
  [[nodiscard]] static Profile read(const std::string& named);
};

/// The batches of every step and rank of a run.
class Plan {
 public:
  /// One micro-batch.
  struct Batch {
    int step = 0;
    int rank = 0;
    int micro_batch = 0;
    std::vector<std::int64_t> samples;  ///< Ids, in batch order.
    std::vector<std::int64_t> lengths;  ///< [sample] tokens.
    std::int64_t padded_length = 0;
  };

  /// Sorted by step, rank and micro-batch.
  [[nodiscard]] const std::vector<Batch>& batches() const;
  /// Writes the plan file that stepsim.torch.live trains.
  void write(const std::string& path) const;

 private:
  friend class Job;
  struct Parts;
  std::shared_ptr<const Parts> parts_;
};

/// A training job to predict: a cluster, a model, data and batching policies.
class Scenario {
 public:
  /// `named`: a file, or the name of a shipped one.
  [[nodiscard]] static Scenario read(const std::string& named);
  /// `file` names the text in messages; relative paths inside start from its folder.
  [[nodiscard]] static Scenario parse(const std::string& text, const std::string& file);

  /// Returns the scenario under other values of some keys.
  [[nodiscard]] Scenario with(const std::vector<Setting>& settings) const;
  /// Returns the scenario with these samples, in tokens, in place of its data.
  [[nodiscard]] Scenario with_lengths(std::vector<std::int64_t> lengths) const;

  [[nodiscard]] const std::string& name() const;
  [[nodiscard]] int ranks() const;
  [[nodiscard]] std::vector<std::string> policies() const;

 private:
  friend class Job;
  struct Parts;
  std::shared_ptr<const Parts> parts_;
};

/// What a step takes. Times are in milliseconds.
struct Prediction {
  std::string policy;
  double step_ms = 0;  ///< The mean of the steady steps.
  double low90_ms = 0;
  double high90_ms = 0;  ///< With the lower end the 90 % interval of that mean.
  double useful_tokens_per_s = 0;
  /// All figures of the summary, by their names in `stepsim run --csv`.
  std::vector<std::pair<std::string, double>> figures;
  std::vector<std::string> warnings;
};

/// What was asked has an answer in several forms. Those that it does not have are empty.
class Answer {
 public:
  /// 0; 1 where the answer is no, as of a validation outside of its bound.
  [[nodiscard]] int status() const;
  [[nodiscard]] const std::vector<std::string>& warnings() const;
  /// Returns the text as a terminal of so many columns shows it; 0: as a file has it.
  [[nodiscard]] std::string text(int columns = 0) const;
  [[nodiscard]] std::string json() const;
  [[nodiscard]] std::string csv() const;
  [[nodiscard]] std::string html() const;

 private:
  friend class Job;
  struct Parts;
  std::shared_ptr<const Parts> parts_;
};

/// A value of an option.
using Value = std::variant<bool,
                           std::int64_t,
                           double,
                           std::string,
                           std::vector<std::int64_t>,
                           std::vector<double>,
                           std::vector<std::string>>;

/// A command of stepsim.
struct Question {
  std::string name;
  std::string summary;
  std::vector<std::pair<std::string, std::string>> options;  ///< Names, and what they say.
};

/// All that can be asked.
[[nodiscard]] std::vector<Question> questions();

/// A scenario with its profile, read once, to be asked and predicted under many settings. Settings
/// that leave the batches as they are share the plan, and those that leave the ops as they are,
/// their prices.
class Job {
 public:
  explicit Job(const Scenario& scenario);

  /// One policy; the first, without a name. `noise`: whether the interval is drawn, else it is the
  /// mean itself.
  [[nodiscard]] Prediction predict(const std::vector<Setting>& settings = {},
                                   const std::string& policy = {},
                                   bool noise = true) const;
  [[nodiscard]] Plan plan(const std::string& policy = {}) const;
  /// Asks a question with its options, {"over", std::vector<std::string>{"ddp.bucket_cap=…"}}.
  [[nodiscard]] Answer ask(const std::string& question,
                           const std::vector<std::pair<std::string, Value>>& options = {}) const;

 private:
  struct Parts;
  std::shared_ptr<Parts> parts_;
};

}  // namespace stepsim::face

#ifndef STEPSIM_FACE_ALONE
namespace stepsim {
// The library's own sources have other types of some of these names.
using namespace face;  // NOLINT(google-build-using-namespace)
}  // namespace stepsim
#endif
