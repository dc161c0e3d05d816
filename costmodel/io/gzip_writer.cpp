#include "costmodel/io/gzip_writer.h"

#include <array>
#include <filesystem>
#include <new>

#include <zlib.h>

namespace stepsim {
namespace {

constexpr std::size_t kPiece = std::size_t{1} << 16;

bool packs(const std::string& path) {
  return std::filesystem::path(path).extension() == ".gz";
}

}  // namespace

struct GzipWriter::Packer {
  Packer() {
    constexpr int kGzip = 16;  // Added to the window size, this asks zlib for a gzip header.
    constexpr int kMemory = 8;
    if (deflateInit2(&stream,
                     Z_DEFAULT_COMPRESSION,
                     Z_DEFLATED,
                     MAX_WBITS + kGzip,
                     kMemory,
                     Z_DEFAULT_STRATEGY) != Z_OK) {
      throw std::bad_alloc();
    }
  }
  ~Packer() { deflateEnd(&stream); }
  Packer(const Packer&) = delete;
  Packer& operator=(const Packer&) = delete;

  z_stream stream{};
  std::array<char, kPiece> packed{};
};

GzipWriter::GzipWriter(const std::string& path)
    : file_(path), packer_(packs(path) ? std::make_unique<Packer>() : nullptr) {}

GzipWriter::~GzipWriter() = default;

void GzipWriter::write(std::string_view text) {
  text_bytes_ += static_cast<std::int64_t>(text.size());
  if (packer_ == nullptr) {
    file_bytes_ = text_bytes_;
    file_.write(text);
  } else {
    pack(text, false);
  }
}

void GzipWriter::finish() {
  if (packer_ != nullptr) {
    pack({}, true);
  }
  file_.finish();
}

void GzipWriter::pack(std::string_view text, bool last) {
  z_stream& stream = packer_->stream;
  do {
    const std::string_view piece = text.substr(0, kPiece);
    text.remove_prefix(piece.size());
    // zlib does not write to its input, though its type says so.
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(piece.data()));
    stream.avail_in = static_cast<uInt>(piece.size());
    do {
      stream.next_out = reinterpret_cast<Bytef*>(packer_->packed.data());
      stream.avail_out = static_cast<uInt>(kPiece);
      deflate(&stream, last ? Z_FINISH : Z_NO_FLUSH);
      const std::size_t size = kPiece - stream.avail_out;
      file_bytes_ += static_cast<std::int64_t>(size);
      file_.write({packer_->packed.data(), size});
    } while (stream.avail_out == 0);
  } while (!text.empty());
}

}  // namespace stepsim
