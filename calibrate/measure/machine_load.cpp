#include "calibrate/measure/machine_load.h"

#include <chrono>
#include <fstream>
#include <string>
#include <thread>

namespace stepsim {
namespace {

struct Ticks {
  double idle = 0;
  double all = 0;
};

/// First line of /proc/stat: "cpu user nice system idle iowait irq softirq steal guest …".
Ticks read_ticks() {
  std::ifstream file("/proc/stat");
  std::string name;
  file >> name;
  Ticks ticks;
  double value = 0;
  for (int field = 0; field < 8 && file >> value; ++field) {
    ticks.all += value;
    if (field == 3 || field == 4) {
      ticks.idle += value;
    }
  }
  return ticks;
}

}  // namespace

std::optional<double> busy_share(double seconds) {
  const Ticks before = read_ticks();
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  const Ticks after = read_ticks();
  const double all = after.all - before.all;
  // Fewer than a few ticks: the file is not kept up to date (some containers).
  if (all < 5) {
    return std::nullopt;
  }
  return 1 - (after.idle - before.idle) / all;
}

}  // namespace stepsim
