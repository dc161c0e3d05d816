#include "costmodel/io/gzip_file.h"

#include <string>

#include <doctest/doctest.h>

#include "tests/costmodel/helpers.h"

using namespace stepsim;

namespace {

/// What `printf 'a,b\n1,2\n' | gzip -n` writes.
const std::string kPacked(
    "\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\x4b\xd4\x49\xe2\x32\xd4\x31\xe2\x02\x00\x7b\x07\x97"
    "\x0a\x08\x00\x00\x00",
    28);

std::string error_for(const std::string& bytes) {
  const std::string path = test::written("x.csv.gz", bytes);
  return test::error_of([&] { (void)read_text_or_gzip(path); });
}

}  // namespace

TEST_CASE("gzip is known by its content; plain text stays as it is") {
  CHECK(read_text_or_gzip(test::written("x.csv", kPacked)) == "a,b\n1,2\n");
  CHECK(read_text_or_gzip(test::written("x.csv.gz", "a,b\n")) == "a,b\n");
  CHECK(read_text_or_gzip(test::written("x", "")).empty());
}

TEST_CASE("a gzip file of several members is their texts one after another") {
  CHECK(read_text_or_gzip(test::written("x.gz", kPacked + kPacked)) == "a,b\n1,2\na,b\n1,2\n");
}

TEST_CASE("cut and damaged gzip files are refused with their name") {
  CHECK(error_for(kPacked.substr(0, 20)).find("x.csv.gz: error: the gzip file is cut short") !=
        std::string::npos);
  std::string damaged = kPacked;
  damaged[21] ^= 1;  // In the checksum.
  CHECK(error_for(damaged).find("the gzip file is damaged") != std::string::npos);
  CHECK(error_for(kPacked + "tail").find("the gzip file is") != std::string::npos);
}
