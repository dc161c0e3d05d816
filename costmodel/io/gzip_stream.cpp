#include "costmodel/io/gzip_stream.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include <unistd.h>
#include <zlib.h>

#include "costmodel/base/input_error.h"

namespace stepsim {

GzipStream::GzipStream(const std::string& path) : path_(path) {
  errno = 0;
  file_ = path == "-" ? gzdopen(::dup(STDIN_FILENO), "rb") : gzopen(path.c_str(), "rb");
  if (file_ == nullptr) {
    throw InputError(SourcePlace{path}, std::string("cannot read: ") + strerror(errno));
  }
  std::error_code no_file;
  const std::uintmax_t size = std::filesystem::file_size(path, no_file);
  size_ = no_file ? 0 : static_cast<double>(size);
}

double GzipStream::share() const {
  const auto read = static_cast<double>(gzoffset(static_cast<gzFile>(file_)));
  return size_ > 0 ? std::clamp(read / size_, 0.0, 1.0) : 0;
}

GzipStream::~GzipStream() {
  gzclose(static_cast<gzFile>(file_));
}

bool GzipStream::append(std::size_t max_bytes, std::string* text) {
  auto* file = static_cast<gzFile>(file_);
  const std::size_t size = text->size();
  text->resize(size + max_bytes);
  const int got = gzread(file, text->data() + size, static_cast<unsigned>(max_bytes));
  const auto added = static_cast<std::size_t>(std::max(got, 0));
  text->resize(size + added);
  read_ += added;
  int status = Z_OK;
  gzerror(file, &status);
  const SourcePlace place{path_};
  if (status == Z_ERRNO) {
    throw InputError(place, std::string("cannot read: ") + strerror(errno));
  }
  if (status == Z_BUF_ERROR) {
    throw InputError(place, "byte {} (unpacked): the gzip file is cut short", read_);
  }
  if (got < 0 || (status != Z_OK && status != Z_STREAM_END)) {
    throw InputError(place, "byte {} (unpacked): the gzip file is damaged", read_);
  }
  // Traces shrink to a tenth or a fiftieth; what shrinks more is made to fill memory or time.
  constexpr std::size_t kUnpackedInAnyCase = std::size_t{64} << 20;
  constexpr std::size_t kMostTimes = 250;
  const auto packed = static_cast<std::size_t>(std::max<z_off_t>(gzoffset(file), 0));
  if (read_ > kUnpackedInAnyCase && read_ / kMostTimes > packed) {
    throw InputError(place, "unpacks to more than {} times its size; no trace does", kMostTimes);
  }
  return got > 0;
}

}  // namespace stepsim
