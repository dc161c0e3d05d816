#include "sim/batching/policies/policy_table.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "costmodel/base/input_error.h"
#include "costmodel/base/row_named.h"

namespace stepsim {

std::vector<PolicyFamily> policy_families() {
  return {{"by count, length or budget", library_policies()},
          {"balanced over the ranks", balancing_policies()},
          {"packed without padding, for attention = \"varlen\"", packing_policies()},
          {"already formed", playing_policies()}};
}

std::span<const PolicyKind> policy_table() {
  static const std::vector<PolicyKind> kTable = [] {
    std::vector<PolicyKind> table;
    for (PolicyFamily& family : policy_families()) {
      std::ranges::move(family.kinds, std::back_inserter(table));
    }
    return table;
  }();
  return kTable;
}

const PolicyKind& policy_kind(std::string_view name) {
  try {
    return row_named(policy_table(), &PolicyKind::name, "policy kind", name, Lookup::Policies);
  } catch (const InputError& error) {
    const std::string message = error.what();
    if (message.find("; did you mean ") != std::string::npos) {
      throw;
    }
    throw InputError(message +
                         "; any other sampler: kind = \"plan\" with the file of a recorded "
                         "run, whose batches it plays",
                     error.lookup());
  }
}

std::span<const std::string> policy_parameter_names() {
  static const std::vector<std::string> kNames = [] {
    std::vector<std::string> names;
    for (const PolicyKind& kind : policy_table()) {
      for (const PolicyParameter& parameter : kind.parameters) {
        if (std::ranges::find(names, parameter.name) == names.end()) {
          names.push_back(parameter.name);
        }
      }
    }
    return names;
  }();
  return kNames;
}

std::vector<PolicyKind> playing_policies() {
  return {{.name = "plan",
           .summary = "the batches of a plan file or of a run record, step by step as they are, "
                      "from the start again where they end; its samples are those of the file",
           .source = "any sampler: record a run with stepsim_recorder.py, or write a plan",
           .is_common = true,
           .parameters = {required_file("file")},
           .epoch = PolicyKind::PlaysFile{}}};
}

std::function<std::optional<double>(const PolicyParameters&)> value_of(std::string parameter) {
  return [name = std::move(parameter)](const PolicyParameters& parameters) {
    return parameters.maybe_number(name);
  };
}

}  // namespace stepsim
