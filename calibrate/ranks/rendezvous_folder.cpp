#include "calibrate/ranks/rendezvous_folder.h"

#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <system_error>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "calibrate/ranks/rank_channel.h"
#include "costmodel/base/input_error.h"

namespace stepsim::ranks {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kName = "stepsim-ranks-";

int open_folder(const std::string& path) {
  return ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/// Removes folders of this user that no process has locked: those who made them were killed.
void remove_left_behind(const fs::path& parent) {
  std::error_code ignored;
  for (fs::directory_iterator entry(parent, ignored), end; !ignored && entry != end;
       entry.increment(ignored)) {
    const std::string path = entry->path().string();
    if (!entry->path().filename().string().starts_with(kName)) {
      continue;
    }
    const int folder = open_folder(path);
    struct stat status {};
    if (folder >= 0 && ::fstat(folder, &status) == 0 && status.st_uid == ::geteuid() &&
        ::flock(folder, LOCK_EX | LOCK_NB) == 0) {
      std::error_code not_removed;
      fs::remove_all(path, not_removed);
    }
    if (folder >= 0) {
      ::close(folder);
    }
  }
}

/// Whether `path` still is the open folder; another process may have removed it before the lock.
bool is_there(const std::string& path, int folder) {
  struct stat named {};
  struct stat opened {};
  return ::lstat(path.c_str(), &named) == 0 && ::fstat(folder, &opened) == 0 &&
         named.st_ino == opened.st_ino && named.st_dev == opened.st_dev;
}

}  // namespace

RendezvousFolder::RendezvousFolder() {
  const fs::path parent = fs::temp_directory_path();
  remove_left_behind(parent);
  while (lock_ < 0) {
    path_ = (parent / kName).string() + "XXXXXX";
    if (::mkdtemp(path_.data()) == nullptr) {
      throw EnvironmentFault("cannot make a folder {}: {}", path_, errno_text());
    }
    lock_ = open_folder(path_);
    if (lock_ < 0 && errno != ENOENT) {
      throw EnvironmentFault("cannot open {}: {}", path_, errno_text());
    }
    // Where a file system has no locks, nobody finds the folder unlocked either.
    if (lock_ >= 0 && ::flock(lock_, LOCK_SH) == 0 && !is_there(path_, lock_)) {
      ::close(lock_);
      lock_ = -1;
    }
  }
}

RendezvousFolder::~RendezvousFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
  ::close(lock_);
  // A process that was killed a moment before this run began may have held its lock until then.
  const fs::path parent = fs::temp_directory_path(ignored);
  if (!ignored) {
    remove_left_behind(parent);
  }
}

}  // namespace stepsim::ranks
