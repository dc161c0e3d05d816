#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "costmodel/base/memory_limit.h"
#include "costmodel/base/parse_units.h"
#include "costmodel/io/atomic_file.h"
#include "costmodel/io/foreign_file.h"
#include "costmodel/io/json_file.h"

namespace stepsim {
namespace {

/// An open file that closes itself at the end of the scope.
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

 private:
  int number_;
};

/// The size of a regular file; 0 of any other.
std::size_t size_of_file(int descriptor) {
  struct stat about {};
  const bool known = ::fstat(descriptor, &about) == 0 && S_ISREG(about.st_mode);
  return known ? static_cast<std::size_t>(about.st_size) : 0;
}

constexpr std::size_t kReadInAnyCase = std::size_t{16} << 20;

/// Raises InputError: a text of this size is too long.
void require_room(const std::string& path, std::size_t size) {
  const std::size_t limit = size > kReadInAnyCase ? longest_text() : size;
  if (size > limit) {
    throw InputError("cannot read {}: larger than {}, a quarter of the memory that there is",
                     printable(path),
                     format_bytes(Bytes(static_cast<std::int64_t>(limit))));
  }
}

/// Raises InputError where the text is known to be of none of our files.
void refuse_foreign(const std::string& path, std::string_view text) {
  if (const std::string_view what = foreign_file(text); !what.empty()) {
    throw InputError(SourcePlace{path}, "this is {}", what);
  }
}

}  // namespace

std::size_t longest_text() {
  constexpr std::size_t kShare = 4;
  const std::optional<Bytes> limit = memory_limit();
  return limit ? std::max(kReadInAnyCase, static_cast<std::size_t>(limit->value()) / kShare)
               : SIZE_MAX;
}

std::string read_text(const std::string& path, std::size_t max_bytes) {
  constexpr std::size_t kChunk = std::size_t{1} << 16;
  const auto cannot_read = [&path](int error) {
    return InputError(
        "cannot read {}: {}", printable(path), std::generic_category().message(error));
  };
  Descriptor opened(path == "-" ? ::dup(STDIN_FILENO) : ::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (opened.number() < 0) {
    throw cannot_read(errno);
  }
  std::string text;
  if (const std::size_t file_size = size_of_file(opened.number()); file_size <= max_bytes) {
    require_room(path, file_size);
    text.reserve(file_size + kChunk);
  }
  while (true) {
    const std::size_t size = text.size();
    if (size + kChunk > text.capacity()) {
      require_room(path, size + kChunk);
    }
    text.resize(size + kChunk);
    const ssize_t count = ::read(opened.number(), text.data() + size, kChunk);
    if (count < 0 && errno != EINTR) {
      throw cannot_read(errno);
    }
    text.resize(size + static_cast<std::size_t>(count > 0 ? count : 0));
    if (text.size() > max_bytes) {
      throw InputError("cannot read {}: larger than {} bytes", printable(path), max_bytes);
    }
    if (count == 0) {
      refuse_foreign(path, text);
      return text;
    }
  }
}

void write_text_atomically(const std::string& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text);
  file.finish();
}

}  // namespace stepsim
