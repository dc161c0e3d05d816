#pragma once

#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "calibrate/import/kineto/kineto_events.h"
#include "tests/costmodel/helpers.h"

namespace stepsim::test {

/// All rows and the header of a trace as text, or the error.
inline std::string told_of_trace(const std::string& path, KinetoParser parser) {
  std::string text;
  const std::string error = error_of([&] {
    const KinetoHeader header = read_kineto_events(
        path,
        [&text](const KinetoEvent& event) {
          text += fmt::format("{}|{}|{}|{}|{}|{}|{}|{}\n",
                              event.phase,
                              event.category,
                              event.name,
                              event.process,
                              event.thread,
                              event.start_ns.value_or(-1),
                              event.duration_ns.value_or(-1),
                              fmt::join(event.args, "|"));
        },
        {},
        parser);
    text += fmt::format("{} {} {} {} {} {} {} {} {}\n",
                        header.rank.value_or(-1),
                        header.world_size.value_or(-1),
                        header.backend,
                        header.nccl_version,
                        header.device,
                        header.devices,
                        header.base_ns,
                        header.fractional_times,
                        header.repaired);
  });
  return text + error;
}

}  // namespace stepsim::test
