// nccl_group.h on host memory, between processes of this machine. A group shares one file that all
// ranks have mapped: each puts a piece of its data there, waits for the others, and reads what they
// put. Sums are taken in double precision and rounded once (NCCL rounds at every rank).
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <thread>

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <unistd.h>

#include "calibrate/cuda/collectives/nccl_group.h"
#include "costmodel/base/input_error.h"
#include "tests/calibrate/cuda/host_array.h"

namespace stepsim::cuda {
namespace {

constexpr std::size_t kPieceBytes = std::size_t{1} << 16;
constexpr std::size_t kHeaderBytes = 4096;
constexpr auto kPatience = std::chrono::seconds(30);

/// One rank's view of the shared file: a count of arrivals, then a piece for each rank.
class SharedFile {
 public:
  SharedFile(int rank, int ranks, const std::string& path)
      : rank_(rank), ranks_(ranks), bytes_(kHeaderBytes + kPieceBytes * std::size_t(ranks)) {
    const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    const bool grown = file >= 0 && ::ftruncate(file, static_cast<off_t>(bytes_)) == 0;
    memory_ =
        grown ? ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
    if (file >= 0) {
      ::close(file);
    }
    if (memory_ == MAP_FAILED) {
      throw EnvironmentFault("emulated NCCL: cannot map " + path + ": " + std::strerror(errno));
    }
    wait_for_all();
    if (rank == 0) {
      ::unlink(path.c_str());
    }
  }
  ~SharedFile() { ::munmap(memory_, bytes_); }
  SharedFile(const SharedFile&) = delete;
  SharedFile& operator=(const SharedFile&) = delete;

  [[nodiscard]] std::byte* piece(int rank) const {
    return static_cast<std::byte*>(memory_) + kHeaderBytes + kPieceBytes * std::size_t(rank);
  }

  void wait_for_all() {
    std::atomic_ref<std::uint64_t> arrived(*static_cast<std::uint64_t*>(memory_));
    ++arrived;
    ++meetings_;
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (arrived < meetings_ * std::uint64_t(ranks_)) {
      if (std::chrono::steady_clock::now() > deadline) {
        throw EnvironmentFault(
            fmt::format("emulated NCCL: rank {} of {} waits in vain for others", rank_, ranks_));
      }
      std::this_thread::yield();
    }
  }

 private:
  int rank_;
  int ranks_;
  std::size_t bytes_;
  void* memory_ = nullptr;
  std::uint64_t meetings_ = 0;
};

SharedFile& shared(void* communicator) {
  return *static_cast<SharedFile*>(communicator);
}

/// Calls `use(first, count)` for pieces of `elements` once every rank's piece of `data` is shared.
template <typename Use>
void in_pieces(SharedFile& file, int rank, ConstArray data, std::int64_t elements, const Use& use) {
  const std::int64_t size = element_size(data.dtype);
  const std::int64_t most = static_cast<std::int64_t>(kPieceBytes) / size;
  for (std::int64_t first = 0; first < elements; first += most) {
    const std::int64_t count = std::min(most, elements - first);
    std::memcpy(file.piece(rank), data.at(first).data, static_cast<std::size_t>(count * size));
    file.wait_for_all();
    use(first, count);
    file.wait_for_all();
  }
}

double sum_over_ranks(const SharedFile& file, int ranks, Dtype dtype, std::int64_t index) {
  double sum = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    sum += load({file.piece(rank), dtype}, index);
  }
  return sum;
}

}  // namespace

std::string nccl_unique_id() {
  std::string path = (std::filesystem::temp_directory_path() / "emulated-nccl-XXXXXX").string();
  const int file = ::mkstemp(path.data());
  if (file < 0) {
    throw EnvironmentFault("emulated NCCL: cannot make " + path + ": " + std::strerror(errno));
  }
  ::close(file);
  return path;
}

NcclGroup::NcclGroup(int rank, int ranks, const std::string& unique_id)
    : rank_(rank),
      ranks_(ranks),
      communicator_(ranks == 1 && unique_id.empty() ? nullptr
                                                    : new SharedFile(rank, ranks, unique_id)) {}

NcclGroup::NcclGroup(const NcclGroup& parent, int /*channels*/)
    : rank_(parent.rank_), ranks_(parent.ranks_) {
  if (parent.communicator_ == nullptr) {
    return;
  }
  SharedFile& file = shared(parent.communicator_);
  if (rank_ == 0) {
    const std::string path = nccl_unique_id();
    std::memcpy(file.piece(0), path.c_str(), path.size() + 1);
  }
  file.wait_for_all();
  const std::string path = reinterpret_cast<const char*>(file.piece(0));
  communicator_ = new SharedFile(rank_, ranks_, path);
}

NcclGroup::~NcclGroup() {
  delete static_cast<SharedFile*>(communicator_);  // Null: a single rank without NCCL.
}

void NcclGroup::all_reduce(const Stream& /*stream*/, Array data, std::int64_t elements) {
  if (communicator_ == nullptr) {
    return;
  }
  SharedFile& file = shared(communicator_);
  in_pieces(file, rank_, data, elements, [&](std::int64_t first, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) {
      store(data, first + i, sum_over_ranks(file, ranks_, data.dtype, i));
    }
  });
}

void NcclGroup::reduce_scatter(const Stream& /*stream*/, Array data, std::int64_t elements) {
  if (communicator_ == nullptr) {
    return;
  }
  SharedFile& file = shared(communicator_);
  const std::int64_t share = elements / ranks_;
  in_pieces(file, rank_, data, elements, [&](std::int64_t first, std::int64_t count) {
    const std::int64_t from = std::max(first, rank_ * share);
    const std::int64_t to = std::min(first + count, (rank_ + 1) * share);
    for (std::int64_t i = from; i < to; ++i) {
      store(data, i, sum_over_ranks(file, ranks_, data.dtype, i - first));
    }
  });
}

void NcclGroup::all_gather(const Stream& /*stream*/, Array data, std::int64_t elements) {
  if (communicator_ == nullptr) {
    return;
  }
  SharedFile& file = shared(communicator_);
  const std::int64_t share = elements / ranks_;
  const std::int64_t size = element_size(data.dtype);
  in_pieces(
      file, rank_, data.at(rank_ * share), share, [&](std::int64_t first, std::int64_t count) {
        for (int rank = 0; rank < ranks_; ++rank) {
          std::memcpy(data.at(rank * share + first).data,
                      file.piece(rank),
                      static_cast<std::size_t>(count * size));
        }
      });
}

std::string nccl_version() {
  return "emulated";
}

}  // namespace stepsim::cuda
