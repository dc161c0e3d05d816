#include "sim/report/csv.h"

#include <variant>

#include <fmt/core.h>

#include "sim/report/prediction_columns.h"

namespace stepsim {

std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) {
    return text;
  }
  std::string quoted = "\"";
  for (const char c : text) {
    quoted += c;
    if (c == '"') {
      quoted += '"';
    }
  }
  return quoted + "\"";
}

std::string summary_csv(const std::vector<Prediction>& predictions) {
  std::string text = csv_header(summary_columns(), "policy");
  for (const Prediction& prediction : predictions) {
    text += csv_line(summary_columns(), prediction.summary, csv_field(prediction.policy));
  }
  return text;
}

std::string steps_csv(const std::vector<Prediction>& predictions) {
  std::string text = "policy";
  for (const StepColumn& column : step_columns()) {
    text += fmt::format(",{}", column.name);
  }
  text += "\n";
  for (const Prediction& prediction : predictions) {
    for (const RankStepResult& row : prediction.steps) {
      text += csv_field(prediction.policy);
      for (const StepColumn& column : step_columns()) {
        std::visit([&](auto member) { text += fmt::format(",{}", row.*member); }, column.member);
      }
      text += "\n";
    }
  }
  return text;
}

}  // namespace stepsim
