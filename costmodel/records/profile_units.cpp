#include <array>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "costmodel/compute/cost_model.h"
#include "costmodel/io/json_numbers.h"
#include "costmodel/records/profile_format.h"

namespace stepsim {
namespace {

using Member = std::pair<const char*, double UnitHostTimes::*>;

constexpr std::array<Member, 6> kMembers = {
    {{"forward_s", &UnitHostTimes::forward},
     {"forward_tensor_s", &UnitHostTimes::forward_tensor},
     {"backward_s", &UnitHostTimes::backward},
     {"backward_tensor_s", &UnitHostTimes::backward_tensor},
     {"optimizer_tensor_s", &UnitHostTimes::optimizer_tensor},
     {"byte_s", &UnitHostTimes::byte}}};

}  // namespace

UnitHostTimes usual_unit_times(bool on_cpu) {
  UnitHostTimes times;
  times.forward = 870e-6;
  times.forward_tensor = 25e-6;
  times.backward = 1000e-6;
  times.backward_tensor = 45e-6;
  times.optimizer_tensor = on_cpu ? 500e-6 : 48e-6;
  return times;
}

Json unit_host_json(const UnitHostTimes& times) {
  Json json;
  for (const Member& member : kMembers) {
    json[member.first] = finite(times.*member.second);
  }
  return json;
}

UnitHostTimes read_unit_host(JsonReader reader) {
  UnitHostTimes times;
  for (const Member& member : kMembers) {
    const bool is_optional = member.second == &UnitHostTimes::byte;
    const double value =
        is_optional && !reader.has(member.first) ? 0 : reader.not_negative(member.first);
    if (value > kMaxCostSeconds) {
      reader.fail(member.first, fmt::format("{} s is too long; expected at most 1 hour", value));
    }
    times.*member.second = value;
  }
  return times;
}

double read_launched_copies(JsonReader& reader) {
  const double share = reader.number_or("launched_copies", 0);
  if (!(share >= 0 && share < 1)) {
    reader.fail("launched_copies", "expected a share from 0 to below 1");
  }
  return share;
}

}  // namespace stepsim
