#include "costmodel/io/gzip_writer.h"

#include <filesystem>
#include <string>

#include <doctest/doctest.h>

#include "costmodel/base/input_error.h"
#include "costmodel/io/gzip_file.h"
#include "costmodel/io/json_file.h"
#include "tests/costmodel/helpers.h"

using namespace stepsim;

namespace {

/// Text that packs badly, longer than the pieces that are packed at once.
std::string noise(std::size_t size) {
  std::string text;
  std::uint32_t state = 1;
  for (std::size_t i = 0; i < size; ++i) {
    state = state * 1664525 + 1013904223;
    text += static_cast<char>('0' + (state >> 24) % 64);
  }
  return text;
}

void write(const std::string& path, const std::string& text) {
  GzipWriter file(path);
  file.write(text.substr(0, text.size() / 3));
  file.write("");
  file.write(text.substr(text.size() / 3));
  file.finish();
  CHECK(file.text_bytes() == static_cast<std::int64_t>(text.size()));
  CHECK(file.file_bytes() == static_cast<std::int64_t>(std::filesystem::file_size(path)));
}

}  // namespace

TEST_CASE("a file is packed by its name, and holds the same") {
  const std::string folder = test::fresh_folder();
  for (const std::size_t size : {0, 1, 65536, 1'000'000}) {
    CAPTURE(size);
    const std::string text = noise(size);
    write(folder + "/plain.json", text);
    write(folder + "/packed.json.gz", text);
    CHECK(read_text(folder + "/plain.json") == text);
    CHECK(read_text(folder + "/packed.json.gz").substr(0, 2) == "\x1f\x8b");
    CHECK(read_text_or_gzip(folder + "/packed.json.gz") == text);
  }
  write(folder + "/.gz", "x");  // A name, not an ending.
  CHECK(read_text(folder + "/.gz") == "x");
}

TEST_CASE("a packed file that is not finished leaves the old one") {
  const std::string path = test::written("a.gz", "old");
  {
    GzipWriter file(path);
    file.write("new");
  }
  CHECK(read_text(path) == "old");
  const auto folder = std::filesystem::path(path).parent_path();
  CHECK(std::distance(std::filesystem::directory_iterator(folder), {}) == 1);
}

TEST_CASE("a packed file in no folder is an environment fault") {
  CHECK_THROWS_AS(GzipWriter(test::fresh_folder() + "/a/b.gz"), EnvironmentFault);
}
