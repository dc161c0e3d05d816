#include "costmodel/base/parse_units.h"

#include <doctest/doctest.h>

#include "tests/costmodel/helpers.h"

using namespace stepsim;
using stepsim::test::error_of;

TEST_CASE("sizes are read with binary units, or in bytes without a unit") {
  CHECK(parse_bytes("25 MiB") == Bytes(26214400));
  CHECK(parse_bytes("1GiB") == Bytes(1073741824));
  CHECK(parse_bytes("1024") == Bytes(1024));
  CHECK(parse_bytes("512 B") == Bytes(512));
  CHECK(parse_bytes(" 1.5 KiB ") == Bytes(1536));
  CHECK(parse_bytes("0") == Bytes(0));
}

TEST_CASE("a decimal unit of size is refused with what to write") {
  CHECK(error_of([] { (void)parse_bytes("25 MB"); }) ==
        "unknown unit 'MB'; use KiB, MiB, GiB or bytes without unit");
  CHECK(error_of([] { (void)parse_bytes("many"); }) == "'many' is not a size such as 25 MiB");
  CHECK(error_of([] { (void)parse_bytes("-1"); }) == "'-1' is negative");
  CHECK(error_of([] { (void)parse_bytes("1.5"); }) == "'1.5' is not a whole number of bytes");
  CHECK(error_of([] { (void)parse_bytes("nan"); }) == "'nan' is not a size such as 25 MiB");
  CHECK(error_of([] { (void)parse_bytes("9e9 TiB"); }) == "'9e9 TiB' is larger than 4 EiB");
}

TEST_CASE("a few bytes without a unit are taken for MiB that lack theirs") {
  const std::string message =
      "25 without a unit counts bytes; did you mean \"25 MiB\"? Write \"25 B\" if it is bytes";
  CHECK(error_of([] { (void)parse_bytes("25"); }) == message);
  CHECK(error_of([] { (void)parse_bytes(" 25.0 "); }) == message);
  CHECK(error_of([] { (void)parse_bytes("1023"); }).starts_with("1023 without a unit"));
}

TEST_CASE("times need a unit") {
  CHECK(parse_duration("3 ms") == Duration(3000000));
  CHECK(parse_duration("20us") == Duration(20000));
  CHECK(parse_duration("1.5 s") == Duration(1500000000));
  CHECK(parse_duration("100 ns") == Duration(100));
  CHECK(parse_duration("5 min") == Duration(300000000000));
  CHECK(error_of([] { (void)parse_duration("3"); }) == "'3' has no unit; use ns, us, ms, s or min");
  CHECK(error_of([] { (void)parse_duration("3 h"); }) ==
        "unknown unit 'h'; use ns, us, ms, s or min");
  CHECK(error_of([] { (void)parse_duration("1e11 s"); }) == "'1e11 s' is longer than 292 years");
}

TEST_CASE("bandwidths are bytes per second, by powers of ten or two, or in bits") {
  CHECK(parse_bandwidth("150 GB/s") == 150e9);
  CHECK(parse_bandwidth("1.5kB/s") == 1500);
  CHECK(parse_bandwidth("12.5 GiB/s") == 12.5 * 1073741824);
  CHECK(parse_bandwidth("400 Gbit/s") == 50e9);
  CHECK(error_of([] { (void)parse_bandwidth("150"); }) ==
        "'150' has no unit; use a unit such as MB/s, GB/s, GiB/s or Gbit/s");
  CHECK(error_of([] { (void)parse_bandwidth("150 GB"); }) ==
        "unknown unit 'GB'; use a unit such as MB/s, GB/s, GiB/s or Gbit/s");
  CHECK(error_of([] { (void)parse_bandwidth("fast"); }) ==
        "'fast' is not a bandwidth such as 150 GB/s");
  CHECK(error_of([] { (void)parse_bandwidth("-1 GB/s"); }) == "'-1 GB/s' is negative");
}

TEST_CASE("sizes and times are printed in the unit that fits") {
  CHECK(format_bytes(Bytes(26214400)) == "25 MiB");
  CHECK(format_bytes(Bytes(1651840)) == "1.58 MiB");
  CHECK(format_bytes(Bytes(1023)) == "1023 B");
  CHECK(format_bytes(Bytes(1024)) == "1 KiB");
  CHECK(format_duration(1.234e-3) == "1.234 ms");
  CHECK(format_duration(56.7e-6) == "56.7 us");
  CHECK(format_duration(999.96e-6) == "1.000 ms");
  CHECK(format_duration(0) == "0 s");
  CHECK(format_duration(-2e-3) == "-2.000 ms");
  CHECK(format_duration(59e3) == "983.3 min");
  CHECK(format_duration(60e3) == "16.7 h");
  CHECK(format_duration(1e6) == "12 days");
  CHECK(format_duration(1e18) == "1e+18 s");
}

TEST_CASE("whole sizes read back as they were printed") {
  for (const std::int64_t bytes : {0LL, 1LL, 1023LL, 1024LL, 26214400LL, 5LL << 40}) {
    CAPTURE(bytes);
    CHECK(parse_bytes(format_bytes(Bytes(bytes))) == Bytes(bytes));
  }
}
