#include "costmodel/io/atomic_file.h"

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "costmodel/base/input_error.h"

namespace stepsim {
namespace {

/// Raises EnvironmentFault for a failed system call; reads errno before another call changes it.
[[noreturn]] void cannot_write(const std::string& path, int error = errno) {
  throw EnvironmentFault(
      "cannot write {}: {}", printable(path), std::generic_category().message(error));
}

constexpr const char* kStandardOutput = "standard output";

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
    file_ = ::open(path_.c_str(), O_WRONLY | O_CLOEXEC);
  } else {
    const auto resolved =
        there ? std::filesystem::canonical(path_, ignored) : std::filesystem::path();
    target_ = !there || ignored ? path_ : resolved.string();
    temporary_ = target_ + ".tmp";
    constexpr mode_t kMode = 0666;  // The umask takes bits away, as for any new file.
    file_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, kMode);
  }
  if (file_ < 0) {
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
  if (!temporary_.empty() && ::fsync(file_) != 0 && errno != EINVAL && errno != ENOTSUP) {
    cannot_write(path_);
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
