#define DOCTEST_CONFIG_IMPLEMENT
#include <cstdio>

#include <doctest/doctest.h>

#include "calibrate/cuda/device/device.h"
#include "costmodel/base/input_error.h"

/// Runs the cases on device 0; Meson takes status 77 for skipped.
int main(int argc, char** argv) {
  try {
    stepsim::cuda::use_device(0);
  } catch (const stepsim::EnvironmentFault& fault) {
    std::printf("SKIPPED: no GPU to test on: %s\n", fault.what());
    return 77;
  }
  const stepsim::cuda::DeviceInfo info = stepsim::cuda::device_info();
  std::printf("device: %s, compute capability %d.%d\n",
              info.name.c_str(),
              info.compute_major,
              info.compute_minor);
  return doctest::Context(argc, argv).run();
}
