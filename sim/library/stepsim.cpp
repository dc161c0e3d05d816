#define STEPSIM_FACE_ALONE
#include "sim/library/stepsim.h"

#include <algorithm>
#include <optional>

#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "costmodel/records/plan_file.h"
#include "costmodel/records/shipped.h"
#include "costmodel/terminal/help.h"
#include "costmodel/terminal/show.h"
#include "sim/cli/questions.h"
#include "sim/fit_records.h"
#include "sim/predict/predict.h"
#include "sim/predict/run/jobs.h"
#include "sim/report/notes.h"
#include "sim/report/prediction_columns.h"
#include "sim/study/scenario_plans.h"

namespace stepsim {
namespace {

/// Calls a function, and turns its errors into those that users know.
template <typename Function>
auto guarded(const Function& function) {
  try {
    return function();
  } catch (const InputError& error) {
    throw face::InputError(error.what());
  } catch (const EnvironmentFault& error) {
    throw face::MachineError(error.what());
  }
}

std::vector<Setting> inner(const std::vector<face::Setting>& settings) {
  return mapped(settings, [](const face::Setting& one) { return Setting(one.key, one.value); });
}

}  // namespace

struct face::Plan::Parts {
  stepsim::Plan plan;
  std::vector<Batch> batches;
};

struct face::Scenario::Parts {
  GivenScenario given;
  stepsim::Scenario scenario;

  static face::Scenario made(GivenScenario given) {
    return guarded([&] {
      stepsim::Scenario read = given.read();
      face::Scenario result;
      result.parts_ = std::make_shared<const Parts>(Parts{std::move(given), std::move(read)});
      return result;
    });
  }
};

struct face::Answer::Parts {
  stepsim::Answer answer;
};

struct face::Job::Parts {
  explicit Parts(const face::Scenario& of) : given(of.parts_->given), jobs(of.parts_->scenario) {
    (void)jobs.profile(jobs.base());
  }
  GivenScenario given;
  Jobs jobs;
};

namespace face {

Profile Profile::read(const std::string& named) {
  return guarded([&] {
    const stepsim::Profile profile = read_profile(profile_path(named));
    return Profile{profile.name, profile.id.text, profile.device, profile.backend};
  });
}

const std::vector<Plan::Batch>& Plan::batches() const {
  return parts_->batches;
}

void Plan::write(const std::string& path) const {
  guarded([&] { write_plan(path, parts_->plan); });
}

Scenario Scenario::read(const std::string& named) {
  return Parts::made({guarded([&] { return scenario_path(named); })});
}

Scenario Scenario::parse(const std::string& text, const std::string& file) {
  return Parts::made({file, text});
}

Scenario Scenario::with(const std::vector<Setting>& settings) const {
  GivenScenario given = parts_->given;
  for (const Setting& setting : settings) {
    given.set.emplace_back(setting.key, setting.value);
  }
  return Parts::made(std::move(given));
}

Scenario Scenario::with_lengths(std::vector<std::int64_t> lengths) const {
  GivenScenario given = parts_->given;
  const std::string count = std::to_string(lengths.size());
  given.set.emplace_back("data.lengths",
                         std::make_shared<const std::vector<std::int64_t>>(std::move(lengths)));
  given.set.emplace_back("data.samples", count);
  return Parts::made(std::move(given));
}

const std::string& Scenario::name() const {
  return parts_->scenario.name;
}

int Scenario::ranks() const {
  return parts_->scenario.ranks;
}

std::vector<std::string> Scenario::policies() const {
  return mapped(parts_->scenario.policies, &BatchingPolicy::name);
}

int Answer::status() const {
  return parts_->answer.status;
}

const std::vector<std::string>& Answer::warnings() const {
  return parts_->answer.warnings;
}

std::string Answer::text(int columns) const {
  const stepsim::Answer& answer = parts_->answer;
  Screen screen;
  screen.columns = columns;
  screen.utf8 = true;
  return answer.text ? guarded([&] { return shown(answer.text(screen), screen); }) : "";
}

std::string Answer::json() const {
  return parts_->answer.json ? guarded([&] { return parts_->answer.json_text(); }) : "";
}

std::string Answer::csv() const {
  return parts_->answer.csv ? guarded([&] { return parts_->answer.csv(); }) : "";
}

std::string Answer::html() const {
  return parts_->answer.html ? guarded([&] { return parts_->answer.html(); }) : "";
}

std::vector<Question> questions() {
  return mapped(stepsim::questions(), [](const stepsim::Question& question) {
    Question one{question.name, question.summary, {}};
    for (const OptionRow& row : question.options) {
      one.options.emplace_back(row.long_name(),
                               option_help(row.long_name(), row.words).description);
    }
    return one;
  });
}

Job::Job(const Scenario& scenario)
    : parts_(guarded([&] { return std::make_shared<Parts>(scenario); })) {}

Prediction Job::predict(const std::vector<Setting>& settings,
                        const std::string& policy,
                        bool noise) const {
  return guarded([&] {
    PredictOptions options;
    options.noise_runs = noise ? options.noise_runs : 0;
    options.rows = KeptRows::None;
    const stepsim::Prediction found =
        stepsim::predict(parts_->jobs.job(policy, inner(settings)), options);
    const PredictionSummary& summary = found.summary;
    Prediction prediction{found.policy,
                          summary.step_time_ms.mean,
                          summary.step_time_ms.low90,
                          summary.step_time_ms.high90,
                          summary.useful_tokens_per_s(),
                          {},
                          note_texts(found)};
    for (const Column<PredictionSummary>& column : summary_columns()) {
      prediction.figures.emplace_back(column.csv, std::get<double>(column.value(summary)));
    }
    return prediction;
  });
}

Plan Job::plan(const std::string& policy) const {
  return guarded([&] {
    auto parts = std::make_shared<Plan::Parts>();
    parts->plan = std::move(plan_one(parts_->jobs.base(), policy).plans.front());
    for (const MicroBatch& batch : parts->plan.micro_batches) {
      parts->batches.push_back({batch.step,
                                batch.rank,
                                batch.micro_batch,
                                {batch.samples.begin(), batch.samples.end()},
                                {batch.lengths.begin(), batch.lengths.end()},
                                batch.shape().max_length});
    }
    Plan plan;
    plan.parts_ = std::move(parts);
    return plan;
  });
}

Answer Job::ask(const std::string& question,
                const std::vector<std::pair<std::string, Value>>& options) const {
  return guarded([&] {
    Request request;
    request.given_scenario = parts_->given;
    request.wants_all_forms = true;
    request.fit_records = fit_records;
    auto parts = std::make_shared<Answer::Parts>();
    parts->answer = stepsim::ask(question_named(question), options, std::move(request));
    Answer answer;
    answer.parts_ = std::move(parts);
    return answer;
  });
}

}  // namespace face
}  // namespace stepsim
