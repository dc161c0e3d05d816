#include "costmodel/io/text_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

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

InputError cannot_read(const std::string& path, int error) {
  if (error == EISDIR) {
    return InputError("cannot read {}: it is a folder; name a file in it", printable(path));
  }
  return InputError("cannot read {}: {}", printable(path), std::generic_category().message(error));
}

}  // namespace

std::size_t longest_text() {
  constexpr std::size_t kShare = 4;
  const std::optional<Bytes> limit = memory_limit();
  return limit ? std::max(kReadInAnyCase, static_cast<std::size_t>(limit->value()) / kShare)
               : SIZE_MAX;
}

TextFile::TextFile(std::string path, std::size_t max_bytes)
    : path_(std::move(path)),
      max_bytes_(max_bytes),
      descriptor_(path_ == "-" ? ::dup(STDIN_FILENO)
                               : ::open(path_.c_str(), O_RDONLY | O_CLOEXEC)) {
  if (descriptor_ < 0) {
    throw cannot_read(path_, errno);
  }
  size_ = size_of_file(descriptor_);
}

TextFile::~TextFile() {
  ::close(descriptor_);
}

bool TextFile::append(std::string& text) {
  const std::size_t expected = std::max(size_ <= max_bytes_ ? size_ : 0, read_ + kChunk);
  if (expected > checked_) {
    require_room(path_, expected);
    checked_ = 2 * expected;
  }
  const std::size_t before = text.size();
  text.resize(before + kChunk);
  std::size_t got = 0;
  ssize_t count = 1;
  while (got < kChunk && count != 0) {
    count = ::read(descriptor_, text.data() + before + got, kChunk - got);
    if (count < 0 && errno != EINTR) {
      throw cannot_read(path_, errno);
    }
    got += static_cast<std::size_t>(std::max<ssize_t>(count, 0));
  }
  text.resize(before + got);
  const bool first = read_ == 0;
  read_ += got;
  if (read_ > max_bytes_) {
    throw InputError("cannot read {}: larger than {} bytes", printable(path_), max_bytes_);
  }
  if (const std::string_view what = first ? foreign_file(text) : ""; !what.empty()) {
    throw InputError(SourcePlace{path_}, "this is {}", what);
  }
  return got > 0;
}

std::string read_text(const std::string& path, std::size_t max_bytes) {
  TextFile file(path, max_bytes);
  std::string text;
  while (file.append(text)) {
    text.reserve(std::min(file.size(), max_bytes) + TextFile::kChunk);
  }
  return text;
}

void write_text_atomically(const std::string& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text);
  file.finish();
}

void require_kept_file(const std::string& path) {
  struct stat about {};
  if (::stat(path.c_str(), &about) == 0 &&
      (S_ISFIFO(about.st_mode) || S_ISCHR(about.st_mode) || S_ISSOCK(about.st_mode))) {
    throw InputError(
        "{} is a pipe or a terminal, which can be read only once: write it into a file",
        printable(path));
  }
}

}  // namespace stepsim
