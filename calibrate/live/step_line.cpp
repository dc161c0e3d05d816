#include "calibrate/live/step_line.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "costmodel/io/json_lines.h"

namespace stepsim {

std::string format_line(const LiveLine& line) {
  return line.is_sentinel
             ? fmt::format(
                   R"({{"plan":{},"sentinel_ms":{}}})", line.plan, json_number(line.sentinel_ms))
             : fmt::format(R"({{"plan":{},"step":{}}})", line.plan, step_json(line.step));
}

LiveLine parse_line(const std::string& text) {
  try {
    const Json json = parse_json(text, "line");
    JsonReader reader(json, "line", 0, "");
    LiveLine line;
    line.plan = reader.integer_in("plan", 0, kMaxInt);
    line.is_sentinel = reader.has("sentinel_ms");
    if (line.is_sentinel) {
      line.sentinel_ms = reader.number("sentinel_ms");
    } else {
      line.step = read_step(reader.object("step"), kMaxInt);
    }
    return line;
  } catch (const InputError&) {
    throw EnvironmentFault("a rank of the live run sent a damaged line: " + printable(text));
  }
}

}  // namespace stepsim
