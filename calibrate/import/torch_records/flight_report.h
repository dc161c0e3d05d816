#pragma once

#include <span>
#include <string>

#include "calibrate/import/torch_records/flight_record.h"
#include "costmodel/io/json_file.h"
#include "costmodel/terminal/screen.h"

namespace stepsim {

/// Steps of each rank, the collectives of one, and how far apart ranks launch them.
[[nodiscard]] std::string flight_report(std::span<const FlightDump> dumps, const Screen& screen);

/// Returns the report as JSON of the form "stepsim-flight-recorder/1".
[[nodiscard]] Json flight_json(std::span<const FlightDump> dumps);

}  // namespace stepsim
