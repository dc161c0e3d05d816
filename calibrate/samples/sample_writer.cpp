#include "calibrate/samples/sample_writer.h"

#include <cerrno>
#include <cstring>
#include <fstream>

#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "costmodel/base/input_error.h"

namespace stepsim {
namespace {

[[noreturn]] void fail(const std::string& path, int error) {
  throw EnvironmentFault("cannot write " + path + ": " + std::strerror(error));
}

/// True when more than the torn last line of a killed run follows what is kept: then it was written
/// after this process had read the file.
bool has_line_after(const std::string& path, std::uintmax_t keep_bytes) {
  std::ifstream file(path, std::ios::binary);
  file.seekg(static_cast<std::streamoff>(keep_bytes));
  std::string line;
  return std::getline(file, line) && !file.eof();
}

}  // namespace

SampleWriter::SampleWriter(const std::string& path, std::uintmax_t keep_bytes) : path_(path) {
  file_.reset(std::fopen(path.c_str(), "abe"));
  if (!file_) {
    fail(path, errno);
  }
  const int file = ::fileno(file_.get());
  struct stat about {};
  if (::fstat(file, &about) != 0 || !S_ISREG(about.st_mode)) {
    return;  // A pipe or /dev/full: nothing is kept there.
  }
  if ((::flock(file, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) ||
      has_line_after(path, keep_bytes)) {
    throw InputError(SourcePlace{path},
                     "another process is writing it or has just written it; give each its own "
                     "file, or run the same command again when the other has ended");
  }
  if (::ftruncate(file, static_cast<off_t>(keep_bytes)) != 0) {
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
