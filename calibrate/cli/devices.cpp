#include "calibrate/cuda/device/devices.h"

#include <iterator>
#include <thread>

#include <fmt/core.h>
#include <unistd.h>

#include "calibrate/cli/commands.h"
#include "calibrate/measure/processor.h"
#include "costmodel/base/parse_units.h"

namespace stepsim {
namespace {

constexpr const char* kDevicesUsage =
    "usage: stepcal devices\n\n"
    "Lists the processor and the CUDA devices of this machine, on which --device cpu and cuda\n"
    "measure.\n\n"
    "example:\n"
    "  stepcal devices\n";

std::string cuda_text(const CudaInventory& inventory) {
  std::string text;
  if (inventory.devices.empty()) {
    text = fmt::format("cuda    none: {}\n", inventory.problem);
  }
  for (std::size_t i = 0; i < inventory.devices.size(); ++i) {
    const CudaDevice& device = inventory.devices[i];
    fmt::format_to(std::back_inserter(text),
                   "cuda:{}  {}, {}, {} multiprocessors, compute {}.{}\n",
                   i,
                   device.name,
                   format_bytes(Bytes(device.memory_bytes)),
                   device.multiprocessors,
                   device.compute_major,
                   device.compute_minor);
  }
  if (inventory.runtime_version > 0) {
    fmt::format_to(std::back_inserter(text),
                   "        CUDA runtime {}, driver {}\n",
                   cuda_version_text(inventory.runtime_version),
                   inventory.driver_version > 0
                       ? "for CUDA " + cuda_version_text(inventory.driver_version)
                       : "none");
  }
  return text;
}

Answer ask_devices(const CommandRequest&, const NoOptions&) {
  const auto memory = static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  Answer answer;
  answer.text = [=, cuda = cuda_inventory()](const Screen&) {
    return fmt::format("cpu     {}, {} threads, {}\n{}",
                       processor_name(),
                       std::thread::hardware_concurrency(),
                       format_bytes(Bytes(memory)),
                       cuda_text(cuda));
  };
  return answer;
}

}  // namespace

StepcalCommand devices_command() {
  return question_row("devices", "what there is to measure on", kDevicesUsage, {}, ask_devices);
}

}  // namespace stepsim
