#include "sim/report/advice/sampler_code.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "costmodel/io/json_file.h"
#include "costmodel/terminal/wrap.h"

namespace stepsim {

namespace {

using Type = PolicyParameter::Type;

/// A text as Python writes it, which takes what JSON does.
std::string quoted(const std::string& text) {
  return Json(text).dump();
}

/// The value of a parameter as Python writes it; empty where it has none or its default.
std::string python_value(const PolicyParameter& parameter, const PolicyParameters& values) {
  const std::string& name = parameter.name;
  const PolicyParameters fallback =
      parameter.fallback ? PolicyParameters{{name, *parameter.fallback}} : PolicyParameters();
  if (!values.has(name)) {
    return "";
  }
  switch (parameter.type) {
    case Type::Flag: {
      const bool value = values.flag(name);
      const bool is_default = fallback.has(name) && fallback.flag(name) == value;
      return is_default ? "" : value ? "True" : "False";
    }
    case Type::Integer: {
      const std::int64_t value = values.integer(name);
      const bool is_default = fallback.has(name) && fallback.integer(name) == value;
      return is_default ? "" : fmt::format("{}", value);
    }
    case Type::Number: {
      const double value = values.number(name);
      const bool is_default = fallback.has(name) && fallback.number(name) == value;
      return is_default ? "" : fmt::format("{}", value);
    }
    case Type::Text:
    case Type::File: {
      const std::string& value = values.text(name);
      const bool is_default = fallback.has(name) && fallback.text(name) == value;
      return is_default ? "" : quoted(value);
    }
    case Type::Integers: {
      const std::vector<std::int64_t>& value = values.integers(name);
      const bool is_default = fallback.has(name) && fallback.integers(name) == value;
      return is_default ? "" : Json(value).dump();
    }
  }
  return "";
}

/// Whether the kind and its parameters are all that there is to say.
bool is_plain(const BatchingPolicy& policy) {
  return policy.step_cost_use() == StepCostUse::Never && policy.pad_to_multiple_of() == 1 &&
         policy.pad_to_lengths().empty() && policy.row_length() == 0 && !policy.is_varlen() &&
         !policy.lengths();
}

/// A call in lines of a screen's width, which break between arguments.
std::vector<std::string> called(const std::string& function,
                                const std::vector<std::string>& arguments) {
  constexpr std::size_t kColumns = 76;  // Reports indent code by four.
  constexpr std::size_t kIndent = 4;
  std::string whole = fmt::format("{}({})", function, fmt::join(arguments, ", "));
  if (whole.size() <= kColumns) {
    return {std::move(whole)};
  }
  std::vector<std::string> lines = {function + "("};
  for (const std::string& line : wrapped_list(arguments, kColumns - kIndent - 1)) {
    lines.push_back(std::string(kIndent, ' ') + line);
  }
  lines.back() += ")";
  return lines;
}

std::vector<std::string> sampler_call(const BatchingPolicy& policy,
                                      std::uint64_t seed,
                                      const std::string& scenario_file) {
  if (!is_plain(policy)) {
    return called("sampler = stepsim.torch.BatchSampler.from_scenario",
                  {quoted(scenario_file), quoted(policy.name()), "lengths"});
  }
  std::vector<std::string> arguments = {"lengths", quoted(policy.kind().name)};
  for (const PolicyParameter& parameter : policy.kind().parameters) {
    if (const std::string value = python_value(parameter, policy.parameters()); !value.empty()) {
      arguments.push_back(fmt::format("{}={}", parameter.name, value));
    }
  }
  switch (policy.weighting()) {
    case LossWeighting::Sample:
      arguments.emplace_back("weighting=\"sample\"");
      break;
    case LossWeighting::Token:
      arguments.emplace_back("weighting=\"token\"");
      break;
    case LossWeighting::None:
      break;
  }
  if (seed != 0) {
    arguments.push_back(
        fmt::format("seed={}", seed));  // The batches are then those of stepsim plan.
  }
  return called("sampler = stepsim.torch.BatchSampler", arguments);
}

}  // namespace

std::vector<std::string> sampler_code(const BatchingPolicy& policy,
                                      std::uint64_t seed,
                                      const std::string& scenario_file) {
  if (policy.played() != nullptr) {
    return {};
  }
  std::vector<std::string> lines = {"import stepsim.torch"};
  std::ranges::move(sampler_call(policy, seed, scenario_file), std::back_inserter(lines));
  lines.emplace_back("loader = DataLoader(dataset, batch_sampler=sampler, collate_fn=collate)");
  if (policy.weighting() != LossWeighting::None) {
    lines.emplace_back("# In the loop, for batch, step in sampler.steps(loader):");
    lines.emplace_back("loss = loss * step.loss_scale");
  }
  return lines;
}

}  // namespace stepsim
