#include "costmodel/io/gzip_file.h"

#include <algorithm>
#include <limits>

#include <zlib.h>

#include "costmodel/base/input_error.h"
#include "costmodel/base/parse_units.h"
#include "costmodel/io/json_file.h"

namespace stepsim {
namespace {

constexpr std::size_t kMostBytes = std::size_t{1} << 30;

bool is_gzip(const std::string& bytes) {
  return bytes.size() >= 2 && bytes[0] == '\x1f' && bytes[1] == '\x8b';
}

/// zlib's state for one gzip stream, released at the end of the scope.
class Inflater {
 public:
  explicit Inflater(const std::string& path) : path_(path) {
    constexpr int kGzipOnly = 16 + MAX_WBITS;
    if (inflateInit2(&stream_, kGzipOnly) != Z_OK) {
      throw EnvironmentFault("zlib cannot start");
    }
  }
  ~Inflater() { inflateEnd(&stream_); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  /// Unpacks all gzip members of the file, one after another.
  std::string unpack(std::string& packed) {
    std::string text;
    // zlib counts its input in 32 bits; files of 4 GiB and more are above kMostBytes anyway.
    if (packed.size() > std::numeric_limits<uInt>::max()) {
      refuse_size();
    }
    stream_.next_in = reinterpret_cast<Bytef*>(packed.data());
    stream_.avail_in = static_cast<uInt>(packed.size());
    while (stream_.avail_in > 0) {
      unpack_member(text);
      inflateReset(&stream_);
    }
    return text;
  }

 private:
  void unpack_member(std::string& text) {
    int status = Z_OK;
    while (status != Z_STREAM_END) {
      constexpr std::size_t kChunk = std::size_t{1} << 18;
      const std::size_t size = text.size();
      text.resize(size + kChunk);
      stream_.next_out = reinterpret_cast<Bytef*>(text.data() + size);
      stream_.avail_out = static_cast<uInt>(kChunk);
      status = inflate(&stream_, Z_NO_FLUSH);
      text.resize(size + kChunk - stream_.avail_out);
      if (status == Z_BUF_ERROR) {
        fail("the gzip file is cut short");
      }
      if (status != Z_OK && status != Z_STREAM_END) {
        fail("the gzip file is damaged");
      }
      if (text.size() > most_) {
        refuse_size();
      }
    }
  }

  [[noreturn]] void refuse_size() const {
    fail("unpacks to more than " + format_bytes(Bytes(static_cast<std::int64_t>(most_))));
  }
  [[noreturn]] void fail(const std::string& message) const {
    throw InputError(SourcePlace{path_}, message);
  }

  const std::string& path_;
  std::size_t most_ = std::min(kMostBytes, longest_text());
  z_stream stream_{};
};

}  // namespace

std::string read_text_or_gzip(const std::string& path) {
  std::string bytes = read_text(path);
  return is_gzip(bytes) ? Inflater(path).unpack(bytes) : bytes;
}

}  // namespace stepsim
