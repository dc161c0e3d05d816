#include "costmodel/io/atomic_file.h"

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "costmodel/base/input_error.h"

namespace stepsim {
namespace {

/// Raises EnvironmentFault for a failed system call; reads errno before another call changes it.
[[noreturn]] void cannot_write(const std::string& path, int error = errno) {
  throw EnvironmentFault("cannot write {}: {}",
                         printable(path),
                         error == EISDIR ? "it is a folder; give a file a name in it"
                                         : std::generic_category().message(error));
}

constexpr const char* kStandardOutput = "standard output";
constexpr mode_t kMode = 0666;  // The umask takes bits away, as for any new file.

/// The folder of a path: "." where it names none.
std::string folder_of(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

/// Calls `make` with names in the folder of `path` until one of them was free. Returns that name;
/// empty on other errors, which errno tells.
template <typename Make>
std::string first_free_name(const std::string& path, Make make) {
  static std::atomic<unsigned> next{0};
  constexpr int kAttempts = 1000;  // Process numbers repeat between machines that share a folder.
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    std::string name = fmt::format("{}/.stepsim-{}-{}.tmp", folder_of(path), ::getpid(), next++);
    if (make(name)) {
      return name;
    }
    if (errno != EEXIST) {
      break;
    }
  }
  return "";
}

/// Tells whether nobody may write the file, or this user may not. Root may write any; what its
/// owner made read-only is to stay all the same.
bool is_read_only(const std::string& path) {
  constexpr mode_t kWritable = 0222;
  struct stat state {};
  return ::stat(path.c_str(), &state) == 0 &&
         ((state.st_mode & kWritable) == 0 || ::access(path.c_str(), W_OK) != 0);
}

/// Gives a new file the owner, group and mode of the one that it will replace. Where it cannot have
/// that group, the group gets no rights.
void take_rights(const std::string& path, int file) {
  constexpr mode_t kRights = 07777;
  struct stat state {};
  if (::stat(path.c_str(), &state) != 0) {
    return;
  }
  const bool owned = ::fchown(file, state.st_uid, state.st_gid) == 0 ||
                     ::fchown(file, static_cast<uid_t>(-1), state.st_gid) == 0;
  const mode_t rights = state.st_mode & kRights;
  // A file system without rights is none of this program's concern.
  [[maybe_unused]] const int ignored = ::fchmod(file, owned ? rights : rights & ~mode_t{S_IRWXG});
}

}  // namespace

AtomicFile::AtomicFile(std::string path) : path_(std::move(path)), target_(path_) {
  if (path_ == "-") {
    return;
  }
  std::error_code ignored;
  const auto status = std::filesystem::status(path_, ignored);
  if (std::filesystem::is_directory(status)) {
    cannot_write(path_, EISDIR);
  }
  const bool there = std::filesystem::exists(status);
  if (there && !std::filesystem::is_regular_file(status)) {
    // Devices and pipes cannot be replaced by renaming.
    in_place_ = true;
    file_ = ::open(path_.c_str(), O_WRONLY | O_CLOEXEC);
  } else {
    const auto resolved =
        there ? std::filesystem::canonical(path_, ignored) : std::filesystem::path();
    target_ = !there || ignored ? path_ : resolved.string();
    if (there && is_read_only(target_)) {
      throw EnvironmentFault("cannot write {}: it is read-only; give another name, or chmod u+w",
                             printable(path_));
    }
    open_temporary();
    if (there && file_ >= 0) {
      take_rights(target_, file_);
    }
  }
  if (file_ < 0) {
    cannot_write(path_);
  }
}

void AtomicFile::open_temporary() {
#ifdef O_TMPFILE
  // Its name comes from /proc at the end, see link_temporary().
  const bool can_be_named = ::access("/proc/self/fd", X_OK) == 0;
  file_ = can_be_named ? ::open(folder_of(target_).c_str(), O_WRONLY | O_TMPFILE | O_CLOEXEC, kMode)
                       : -1;
  if (!can_be_named) {
    errno = EOPNOTSUPP;
  }
  if (file_ >= 0 || errno == EACCES || errno == ENOENT || errno == ENOSPC || errno == EROFS) {
    return;
  }
#endif
  temporary_ = first_free_name(target_, [this](const std::string& name) {
    file_ = ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, kMode);
    return file_ >= 0;
  });
}

/// Gives the file its name at once where that is free, so that a kill leaves nothing behind; else a
/// temporary one beside it.
void AtomicFile::link_temporary() {
  const std::string open_file = fmt::format("/proc/self/fd/{}", file_);
  if (::linkat(AT_FDCWD, open_file.c_str(), AT_FDCWD, target_.c_str(), AT_SYMLINK_FOLLOW) == 0) {
    return;
  }
  temporary_ = first_free_name(target_, [&](const std::string& name) {
    return ::linkat(AT_FDCWD, open_file.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) == 0;
  });
  if (temporary_.empty()) {
    cannot_write(path_);
  }
}

AtomicFile::~AtomicFile() {
  if (file_ >= 0) {
    ::close(file_);
    if (!temporary_.empty()) {
      ::unlink(temporary_.c_str());
    }
  }
}

void AtomicFile::write(std::string_view text) {
  if (path_ == "-") {
    if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size()) {
      cannot_write(kStandardOutput);
    }
    return;
  }
  while (!text.empty()) {
    const ssize_t written = ::write(file_, text.data(), text.size());
    if (written < 0) {
      if (errno == EINTR) {
        continue;
      }
      cannot_write(path_);
    }
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

void AtomicFile::finish() {
  if (path_ == "-") {
    if (std::fflush(stdout) != 0) {
      cannot_write(kStandardOutput);
    }
    return;
  }
  // Without fsync() a crash of the machine could leave an empty file under the new name.
  if (!in_place_ && ::fsync(file_) != 0 && errno != EINVAL && errno != ENOTSUP) {
    cannot_write(path_);
  }
  if (!in_place_ && temporary_.empty()) {
    link_temporary();
  }
  close();
  if (!temporary_.empty() && std::rename(temporary_.c_str(), target_.c_str()) != 0) {
    const int error = errno;
    ::unlink(temporary_.c_str());
    cannot_write(path_, error);
  }
}

/// Checks close(): the system may report a delayed write error there.
void AtomicFile::close() {
  const int file = std::exchange(file_, -1);
  if (::close(file) != 0) {
    const int error = errno;
    if (!temporary_.empty()) {
      ::unlink(temporary_.c_str());
    }
    cannot_write(path_, error);
  }
}

}  // namespace stepsim
