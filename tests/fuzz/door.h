#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "costmodel/base/input_error.h"

/// What libFuzzer calls with each input; every door defines it in a program of its own.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace stepsim::fuzz {

/// Feeds an input to a door. Bad input may raise InputError, and a machine at its limits
/// EnvironmentFault; whatever else the door raises goes on to the caller, as a fault.
int enter(const std::uint8_t* data, std::size_t size, void (*door)(std::string_view input));

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
