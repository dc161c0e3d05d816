#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "costmodel/base/input_error.h"

namespace stepsim::fuzz {

/// Where outside text enters: reads an input, and checks what must hold of what was read.
using Door = void (*)(std::string_view input);

void enter_kineto(std::string_view input);
void enter_lengths(std::string_view input);
void enter_nccl_log(std::string_view input);
void enter_plan(std::string_view input);
void enter_points(std::string_view input);
void enter_profile(std::string_view input);
void enter_replay(std::string_view input);
void enter_run_record(std::string_view input);
void enter_samples(std::string_view input);
void enter_scenario(std::string_view input);
void enter_simulation(std::string_view input);
void enter_tables(std::string_view input);
void enter_torch_records(std::string_view input);
void enter_validate(std::string_view input);

/// The door of that name, or null.
Door door_of(std::string_view name);

/// Feeds an input to a door. Bad input may raise InputError, and a machine at its limits
/// EnvironmentFault; whatever else the door raises goes on to the caller, as a fault.
void enter(Door door, std::string_view input);

/// Runs a part of a door that bad input may end, and tells whether it went through.
template <typename Part>
bool accepts(const Part& part) {
  try {
    part();
    return true;
  } catch (const InputError&) {
    return false;
  } catch (const EnvironmentFault&) {
    return false;
  }
}

/// Raises std::logic_error, which no door catches, unless `holds`.
void require(bool holds, const std::string& what);

/// Writes a file for the reader behind a door and returns its path. It lies in a folder of this
/// process, in memory where the system has such a place.
std::string file_with(const std::string& name, std::string_view text);
/// The path of a file in that folder, which need not be there.
std::string path_of(const std::string& name);
/// The path of a file of the sources: "scenarios/profiles/h100_8x_published.json".
std::string source_path(const std::string& name);

/// A part of an input that stands for several files.
struct InputPart {
  std::string name;
  std::string_view text;
};
/// Divides an input at its lines "=== NAME"; what is before the first one has no name.
std::vector<InputPart> parts_of(std::string_view input);

}  // namespace stepsim::fuzz
