#include "sim/parallel/fsdp2/unit_walk.h"

#include <algorithm>
#include <iterator>

#include "costmodel/base/index.h"
#include "sim/parallel/fsdp2/model_units.h"

namespace stepsim {

std::vector<UnitCall> forward_calls(const TrainedModel& model) {
  const std::vector<int> last = last_forward_ops(model);
  std::vector<bool> open(std::max<std::size_t>(1, model.units.size()), false);
  std::vector<UnitCall> calls = {{UnitCall::Kind::Enter, 0}};
  open[0] = true;
  for (std::size_t op = 0; op < model.forward_unit.size(); ++op) {
    std::vector<int> entered;  // The innermost first.
    for (int unit = model.forward_unit[op]; !open[at(unit)]; unit = model.parent_of(unit)) {
      entered.push_back(unit);
    }
    for (auto unit = entered.rbegin(); unit != entered.rend(); ++unit) {
      open[at(*unit)] = true;
      calls.push_back({UnitCall::Kind::Enter, *unit});
    }
    calls.push_back({UnitCall::Kind::Op, static_cast<int>(op)});
    for (int unit = model.forward_unit[op]; unit != 0; unit = model.parent_of(unit)) {
      if (last[at(unit)] == static_cast<int>(op)) {
        calls.push_back({UnitCall::Kind::Leave, unit});
        open[at(unit)] = false;
      }
    }
  }
  calls.push_back({UnitCall::Kind::Leave, 0});
  return calls;
}

std::size_t backward_until(const TrainedModel& model, std::size_t next, int unit, bool also_unit) {
  const std::vector<int>& units = model.backward_unit;
  if (unit == 0) {
    return units.size();
  }
  const auto begin = units.begin() + static_cast<std::ptrdiff_t>(next);
  const auto first = std::find(begin, units.end(), unit);
  if (first == units.end()) {
    return next;
  }
  const auto last = std::find(units.rbegin(), std::make_reverse_iterator(begin), unit).base();
  return static_cast<std::size_t>((also_unit ? last : first) - units.begin());
}

}  // namespace stepsim
