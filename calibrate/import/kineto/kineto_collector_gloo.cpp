#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "calibrate/import/kineto/kineto_collector.h"
#include "calibrate/import/kineto/kineto_dims.h"
#include "calibrate/import/kineto/kineto_events.h"

namespace stepsim {

void KinetoCollector::add_base_call(const KinetoEvent& event,
                                    std::int64_t start_ns,
                                    bool scatters) {
  // "[[4],[8],[],…]", or "[[[4],[2]],[[8],[4]],[],…]" of lists of tensors: as many inputs as
  // outputs.
  const std::string& dims = event.arg(KinetoArg::InputDims);
  const bool of_lists = dims.starts_with("[[[");
  const std::size_t end = of_lists ? dims.find("]]") : std::string::npos;
  const std::size_t tensors =
      end == std::string::npos
          ? 1
          : 1 + static_cast<std::size_t>(std::count(
                    dims.begin() + 3, dims.begin() + static_cast<std::ptrdiff_t>(end), '['));
  for (std::size_t i = 0; i < tensors; ++i) {
    const auto output = dims_of(dims, i);
    const auto input = dims_of(dims, tensors + i);
    if (output && input) {
      const std::int64_t whole = elements_in(scatters ? *input : *output);
      base_calls_.push_back({start_ns, scatters, whole, elements_in(scatters ? *output : *input)});
    }
  }
}

/// Gloo reduce-scatters by an all-reduce of the whole input, and calls its rows so. One that begins
/// after a reduce-scatter was called, and is of its size, is that one. Both ops tell the ranks of
/// their group, of which gloo's rows say nothing.
void KinetoCollector::tell_gloo_calls() {
  std::vector<Call*> rows;
  for (Call& call : calls_) {
    if (call.gloo) {
      rows.push_back(&call);
    }
  }
  std::ranges::sort(rows, {}, [](const Call* call) { return call->at.span.start_ns; });
  std::ranges::sort(base_calls_, {}, &BaseCall::start_ns);
  for (Call* row : rows) {
    Statement& statement = row->statement;
    const bool may_scatter = statement.kind == "all_reduce";
    if (!may_scatter && statement.kind != "all_gather") {
      continue;
    }
    const auto own = std::ranges::find_if(base_calls_, [&](const BaseCall& call) {
      return !call.found && call.scatters == may_scatter &&
             call.start_ns <= row->at.span.start_ns &&
             statement.in_elements == (may_scatter ? call.whole : call.part);
    });
    if (own == base_calls_.end()) {
      continue;
    }
    own->found = true;
    if (may_scatter) {
      statement.kind = "reduce_scatter";
    }
    if (!statement.group_size && own->part > 0 && own->whole % own->part == 0) {
      const std::int64_t ranks = own->whole / own->part;
      statement.group_size = ranks <= kMaxKinetoRanks ? std::optional(ranks) : std::nullopt;
    }
  }
}

}  // namespace stepsim
