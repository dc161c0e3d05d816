#include <algorithm>
#include <chrono>
#include <cstring>

#include <doctest/doctest.h>

#include "calibrate/cuda/kernels/kernels.h"
#include "calibrate/cuda/timing/stream_hold.h"
#include "costmodel/base/input_error.h"
#include "tests/gpu/checks.h"
#include "tests/gpu/test_kernels.h"

namespace stepsim::cuda::test {
namespace {

/// Seconds that the device takes for `work`.
template <typename Work>
double device_seconds(const Work& work) {
  const Event from;
  const Event to;
  from.record(stream());
  work();
  to.record(stream());
  to.synchronize();
  return seconds_between(from, to);
}

/// A buffer of 32-bit words on the device, counting up from 0.
class Words {
 public:
  explicit Words(std::size_t count) : values_(count), buffer_(count * 4) {
    for (std::size_t i = 0; i < count; ++i) {
      values_[i] = static_cast<std::uint32_t>(i);
    }
    copy_to_device(stream(), buffer_.data(), values_.data(), buffer_.bytes());
    stream().synchronize();
  }
  [[nodiscard]] void* data() const { return buffer_.data(); }
  [[nodiscard]] std::int64_t bytes() const { return static_cast<std::int64_t>(buffer_.bytes()); }
  [[nodiscard]] const std::vector<std::uint32_t>& values() const { return values_; }
  [[nodiscard]] std::vector<std::uint32_t> read() const {
    std::vector<std::uint32_t> result(values_.size());
    copy_to_host(stream(), result.data(), buffer_.data(), buffer_.bytes());
    stream().synchronize();
    return result;
  }

 private:
  std::vector<std::uint32_t> values_;
  DeviceBuffer buffer_;
};

}  // namespace

TEST_CASE("cuda: a held stream goes on when it is released, or by itself, which is told") {
  StreamHold hold;
  const double over = device_seconds([&] { hold.hold(stream(), 0, 0.02); });
  CHECK(over < 5);
  if (!emulated()) {
    CHECK(over >= 0.019);  // The device's clock advances in steps.
    CHECK(hold.expired());
  }
  hold.start(2);
  CHECK_FALSE(hold.expired());
  const double released = device_seconds([&] {
    hold.hold(stream(), 1, 30);
    hold.release(1);
  });
  CHECK(released < 5);
  CHECK_FALSE(hold.expired());
}

TEST_CASE("cuda: an empty launch, and a buffer read and written") {
  launch_nothing(stream());
  const Words words(4 * 5001);
  flush_cache(stream(), words.data(), words.bytes());
  const std::vector<std::uint32_t> after = words.read();
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < after.size(); ++i) {
    wrong += after[i] == words.values()[i] + (i % 4 == 0 ? 1 : 0) ? 0 : 1;
  }
  CHECK(wrong == 0);
}

TEST_CASE("cuda: the stand-in for a collective waits, transfers and ends in time") {
  constexpr int kChannels = 2;
  const Words words(kChannels * 3 * 128 * 1024 / 4);
  const double idle = device_seconds([&] {
    stand_in_collective(stream(), kChannels, 0.004, 0.006, words.data(), words.bytes(), 0);
  });
  CHECK(idle >= 0.0095 * (emulated() ? kChannels : 1));
  CHECK(idle < 5);
  CHECK(words.read() == words.values());

  // One round of copies a second: 64 KiB of each channel's part, at once, and no more.
  stand_in_collective(stream(), kChannels, 0, 0.05, words.data(), words.bytes(), 2 * 65536);
  std::vector<std::uint32_t> after = words.read();
  const std::size_t half = after.size() / 2;
  const std::size_t part = half / kChannels;
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < half; ++i) {
    const std::size_t copied = i % part < 65536 / 4 ? i : half + i;
    wrong += after[i] == i && after[half + i] == copied ? 0 : 1;
  }
  CHECK(wrong == 0);

  // The whole part of each channel, over and over.
  const double busy = device_seconds([&] {
    stand_in_collective(stream(), kChannels, 0.001, 0.05, words.data(), words.bytes(), 1e9);
  });
  CHECK(busy >= 0.05);
  CHECK(busy < 5);
  after = words.read();
  const auto middle = after.begin() + static_cast<std::ptrdiff_t>(half);
  CHECK(std::equal(after.begin(), middle, words.values().begin()));
  CHECK(std::equal(after.begin(), middle, middle));
  CHECK_THROWS_AS(stand_in_collective(stream(), 2, 0, 0, words.data(), 100, 1e9), InputError);
  CHECK_THROWS_AS(stand_in_collective(stream(), 0, 0, 0, words.data(), 100, 0), InputError);
}

}  // namespace stepsim::cuda::test
