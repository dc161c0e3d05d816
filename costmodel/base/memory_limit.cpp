#include "costmodel/base/memory_limit.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <fstream>
#include <limits>
#include <string>

#include <sys/resource.h>
#include <unistd.h>

namespace stepsim {
namespace {

constexpr std::int64_t kUnknown = std::numeric_limits<std::int64_t>::max();

// The one limit of the process, which all its jobs share.
// NOLINTBEGIN(cppcoreguidelines-avoid-non-const-global-variables)
std::atomic<std::int64_t> stated_limit = kUnknown;
std::atomic<std::size_t> sharing_jobs = 1;
// NOLINTEND(cppcoreguidelines-avoid-non-const-global-variables)

/// The number that a file of the system begins with; kUnknown where it holds none, as "max".
std::int64_t number_in(const char* path) {
  std::ifstream file(path);
  std::int64_t number = 0;
  return file >> number ? number : kUnknown;
}

/// What the machine can give without swapping.
std::int64_t free_on_machine() {
  constexpr std::int64_t kKib = 1024;
  std::ifstream file("/proc/meminfo");
  std::string name;
  std::int64_t kib = 0;
  while (file >> name >> kib) {
    if (name == "MemAvailable:") {
      return kib * kKib;
    }
    std::getline(file, name);  // The unit.
  }
  return kUnknown;
}

/// What this process has in memory.
std::int64_t resident() {
  std::ifstream file("/proc/self/statm");
  std::int64_t asked = 0;
  std::int64_t in_memory = 0;
  file >> asked >> in_memory;
  return in_memory * sysconf(_SC_PAGESIZE);
}

std::int64_t limit_of_system() {
  std::int64_t limit = free_on_machine();
  limit += limit == kUnknown ? 0 : resident();
  // Of control groups of version 2 and 1, as a container sees its own.
  limit = std::min({limit,
                    number_in("/sys/fs/cgroup/memory.max"),
                    number_in("/sys/fs/cgroup/memory/memory.limit_in_bytes")});
  rlimit addresses{};
  if (getrlimit(RLIMIT_AS, &addresses) == 0 && addresses.rlim_cur != RLIM_INFINITY) {
    limit = std::min(limit, static_cast<std::int64_t>(addresses.rlim_cur));
  }
  return limit;
}

}  // namespace

std::optional<Bytes> memory_limit() {
  const std::int64_t limit = stated_limit == kUnknown ? limit_of_system() : stated_limit.load();
  return limit == kUnknown
             ? std::nullopt
             : std::optional(Bytes(limit / static_cast<std::int64_t>(sharing_jobs.load())));
}

void set_memory_limit(Bytes limit) {
  stated_limit = limit.value();
}

std::size_t memory_shares() {
  return sharing_jobs;
}

MemoryShares::MemoryShares(std::size_t jobs)
    : before_(sharing_jobs.exchange(std::max<std::size_t>(jobs, 1))) {}

MemoryShares::~MemoryShares() {
  sharing_jobs = before_;
}

}  // namespace stepsim
