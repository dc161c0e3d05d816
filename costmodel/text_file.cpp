#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "costmodel/json_file.h"

namespace stepsim {
namespace {

/// An open file, closed at the end of the scope.
class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) {
      ::close(number_);
    }
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  [[nodiscard]] int number() const { return number_; }
  /// False when the system reports a delayed write error.
  [[nodiscard]] bool close() {
    const int number = number_;
    number_ = -1;
    return ::close(number) == 0;
  }

 private:
  int number_;
};

/// The errno of a failed system call, taken before another call can change it.
[[noreturn]] void cannot_write(const std::string& path, int error = errno) {
  throw EnvironmentFault(
      fmt::format("cannot write {}: {}", printable(path), std::generic_category().message(error)));
}

void write_all(int file, const std::string& path, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(file, text.data(), text.size());
    if (written < 0) {
      if (errno == EINTR) {
        continue;
      }
      cannot_write(path);
    }
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

/// Devices and pipes cannot be replaced by renaming.
void write_in_place(const std::string& path, std::string_view text) {
  Descriptor file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (file.number() < 0) {
    cannot_write(path);
  }
  write_all(file.number(), path, text);
  if (!file.close()) {
    cannot_write(path);
  }
}

/// Writes everything to `temporary`; the caller removes it when this throws.
void write_new(const std::string& temporary, const std::string& path, std::string_view text) {
  constexpr mode_t kMode = 0666;  // Less the umask, as every program that creates a file.
  Descriptor file(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, kMode));
  if (file.number() < 0) {
    cannot_write(path);
  }
  write_all(file.number(), path, text);
  // Without it a crash of the machine could leave the new name with no content.
  if (::fsync(file.number()) != 0 && errno != EINVAL && errno != ENOTSUP) {
    cannot_write(path);
  }
  if (!file.close()) {
    cannot_write(path);
  }
}

void write_standard_output(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
    cannot_write("standard output");
  }
}

}  // namespace

std::string read_text(const std::string& path, std::size_t most_bytes) {
  constexpr std::size_t kChunk = std::size_t{1} << 16;
  const auto cannot_read = [&path](int error) {
    return InputError(
        fmt::format("cannot read {}: {}", printable(path), std::generic_category().message(error)));
  };
  Descriptor opened(path == "-" ? ::dup(STDIN_FILENO) : ::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (opened.number() < 0) {
    throw cannot_read(errno);
  }
  std::string text;
  while (true) {
    const std::size_t size = text.size();
    text.resize(size + kChunk);
    const ssize_t count = ::read(opened.number(), text.data() + size, kChunk);
    if (count < 0 && errno != EINTR) {
      throw cannot_read(errno);
    }
    text.resize(size + static_cast<std::size_t>(count > 0 ? count : 0));
    if (text.size() > most_bytes) {
      throw InputError(
          fmt::format("cannot read {}: larger than {} bytes", printable(path), most_bytes));
    }
    if (count == 0) {
      return text;
    }
  }
}

void write_text_atomically(const std::string& path, std::string_view text) {
  if (path == "-") {
    write_standard_output(text);
    return;
  }
  std::error_code ignored;
  const auto status = std::filesystem::status(path, ignored);
  if (std::filesystem::is_directory(status)) {
    cannot_write(path, EISDIR);
  }
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    write_in_place(path, text);
    return;
  }
  // Through a symbolic link the file it points to is replaced, not the link.
  std::string target = path;
  if (std::filesystem::exists(status)) {
    const auto resolved = std::filesystem::canonical(path, ignored);
    target = ignored ? path : resolved.string();
  }
  const std::string temporary = target + ".tmp";
  try {
    write_new(temporary, path, text);
    if (std::rename(temporary.c_str(), target.c_str()) != 0) {
      cannot_write(path);
    }
  } catch (const EnvironmentFault&) {
    ::unlink(temporary.c_str());
    throw;
  }
}

}  // namespace stepsim
