#include "calibrate/samples/sample_writer.h"

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "costmodel/base/input_error.h"

namespace stepsim {
namespace {

[[noreturn]] void fail(const std::string& path, int error) {
  throw EnvironmentFault("cannot write " + path + ": " + std::strerror(error));
}

}  // namespace

SampleWriter::SampleWriter(const std::string& path, std::uintmax_t keep_bytes) : path_(path) {
  std::error_code error;
  if (std::filesystem::is_regular_file(path, error)) {
    std::filesystem::resize_file(path, keep_bytes, error);
    if (error) {
      fail(path, error.value());
    }
  }
  file_.reset(std::fopen(path.c_str(), "ab"));
  if (!file_) {
    fail(path, errno);
  }
}

void SampleWriter::write(const std::string& line) {
  const std::string text = line + "\n";
  const bool written = std::fwrite(text.data(), 1, text.size(), file_.get()) == text.size();
  if (!written || std::fflush(file_.get()) != 0) {
    fail(path_, errno);
  }
}

}  // namespace stepsim
