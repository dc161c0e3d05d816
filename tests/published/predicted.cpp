#include "tests/published/predicted.h"

#include <charconv>
#include <map>
#include <tuple>

#include "sim/predict/predict.h"
#include "tests/source_root.h"

namespace stepsim::published {

namespace {

using Question = std::tuple<std::string, Overrides, std::string>;

/// The answer, computed when it is first asked for: several tests ask for the same steps, and the
/// results file asks for all of them.
template <typename Answer, typename Compute>
Answer once(std::map<Question, Answer>& known, const Question& question, const Compute& compute) {
  const auto found = known.find(question);
  return found != known.end() ? found->second : known.emplace(question, compute()).first->second;
}

}  // namespace

std::string published_file(const std::string& name) {
  return test::source_root() + "/scenarios/published/" + name;
}

Prediction predicted(const std::string& scenario,
                     const Overrides& overrides,
                     const std::string& policy) {
  const Scenario read = read_scenario(published_file(scenario), overrides);
  return predict(read,
                 find_policy(read, policy),
                 scenario_profile(read),
                 {.noise_runs = 0, .keep_timelines = true});
}

double predicted_ms(const std::string& scenario,
                    const Overrides& overrides,
                    const std::string& policy) {
  static std::map<Question, double> known;
  return once(known, {scenario, overrides, policy}, [&] {
    return predicted(scenario, overrides, policy).summary.step_time_ms.mean;
  });
}

std::pair<double, double> predicted_interval(const std::string& scenario,
                                             const Overrides& overrides,
                                             const std::string& policy) {
  static std::map<Question, std::pair<double, double>> known;
  return once(known, {scenario, overrides, policy}, [&] {
    const Scenario read = read_scenario(published_file(scenario), overrides);
    const StepTimeSummary step =
        predict(read, find_policy(read, policy), scenario_profile(read), {}).summary.step_time_ms;
    return std::pair(step.low90, step.high90);
  });
}

double number(const CsvTable& table, std::size_t row, CsvTable::Column column) {
  const std::string_view cell = table.text(row, column);
  double value = 0;
  const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
  if (error != std::errc() || end != cell.data() + cell.size()) {
    table.fail(row, column, "expected a number");
  }
  return value;
}

}  // namespace stepsim::published
