#include "calibrate/cuda/collectives/nccl_group.h"

#include <string_view>

#include <fmt/core.h>
#include <nccl.h>

#include "costmodel/base/input_error.h"

namespace stepsim::cuda {
namespace {

/// Raises EnvironmentFault, naming the call and NCCL's reason, unless `status` is success.
void check_nccl(ncclResult_t status, const char* call, ncclComm_t communicator = nullptr) {
  if (status == ncclSuccess) {
    return;
  }
  const char* const detail = ncclGetLastError(communicator);
  throw EnvironmentFault("{}: {}{}{}",
                         call,
                         ncclGetErrorString(status),
                         detail != nullptr && *detail != '\0' ? ": " : "",
                         detail != nullptr ? detail : "");
}

ncclComm_t comm_of(void* communicator) {
  return static_cast<ncclComm_t>(communicator);
}

ncclDataType_t nccl_type_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::Bf16:
      return ncclBfloat16;
    case Dtype::F16:
      return ncclFloat16;
    default:
      return ncclFloat32;
  }
}

/// The id's bytes as hexadecimal digits, and back.
std::string to_text(const ncclUniqueId& id) {
  std::string text;
  for (const char byte : std::string_view(id.internal, sizeof(id.internal))) {
    text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  }
  return text;
}

ncclUniqueId id_of(const std::string& text) {
  ncclUniqueId id{};
  if (text.size() != 2 * sizeof(id.internal) ||
      text.find_first_not_of("0123456789abcdef") != std::string::npos) {
    throw EnvironmentFault("NCCL: the group's id is damaged: '" + text + "'");
  }
  for (std::size_t i = 0; i < sizeof(id.internal); ++i) {
    id.internal[i] = static_cast<char>(std::stoi(text.substr(2 * i, 2), nullptr, 16));
  }
  return id;
}

}  // namespace

std::string nccl_unique_id() {
  ncclUniqueId id;
  check_nccl(ncclGetUniqueId(&id), "ncclGetUniqueId");
  return to_text(id);
}

NcclGroup::NcclGroup(int rank, int ranks, const std::string& unique_id)
    : rank_(rank), ranks_(ranks) {
  if (ranks == 1 && unique_id.empty()) {
    return;
  }
  ncclComm_t communicator = nullptr;
  check_nccl(ncclCommInitRank(&communicator, ranks, id_of(unique_id), rank), "ncclCommInitRank");
  communicator_ = communicator;
}

NcclGroup::NcclGroup(const NcclGroup& parent, int channels)
    : rank_(parent.rank_), ranks_(parent.ranks_) {
  if (parent.communicator_ == nullptr) {
    return;
  }
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.minCTAs = channels;
  config.maxCTAs = channels;
  ncclComm_t communicator = nullptr;
  check_nccl(ncclCommSplit(comm_of(parent.communicator_), 0, rank_, &communicator, &config),
             "ncclCommSplit",
             comm_of(parent.communicator_));
  communicator_ = communicator;
}

NcclGroup::~NcclGroup() {
  if (communicator_ != nullptr) {
    ncclCommDestroy(comm_of(communicator_));
  }
}

void NcclGroup::all_reduce(const Stream& stream, Array data, std::int64_t elements) {
  if (communicator_ == nullptr) {
    return;
  }
  check_nccl(ncclAllReduce(data.data,
                           data.data,
                           static_cast<std::size_t>(elements),
                           nccl_type_of(data.dtype),
                           ncclSum,
                           comm_of(communicator_),
                           static_cast<cudaStream_t>(stream.handle())),
             "ncclAllReduce",
             comm_of(communicator_));
}

void NcclGroup::reduce_scatter(const Stream& stream, Array data, std::int64_t elements) {
  if (communicator_ == nullptr) {
    return;
  }
  const std::int64_t share = elements / ranks_;
  check_nccl(ncclReduceScatter(data.data,
                               data.at(rank_ * share).data,
                               static_cast<std::size_t>(share),
                               nccl_type_of(data.dtype),
                               ncclSum,
                               comm_of(communicator_),
                               static_cast<cudaStream_t>(stream.handle())),
             "ncclReduceScatter",
             comm_of(communicator_));
}

void NcclGroup::all_gather(const Stream& stream, Array data, std::int64_t elements) {
  if (communicator_ == nullptr) {
    return;
  }
  const std::int64_t share = elements / ranks_;
  check_nccl(ncclAllGather(data.at(rank_ * share).data,
                           data.data,
                           static_cast<std::size_t>(share),
                           nccl_type_of(data.dtype),
                           comm_of(communicator_),
                           static_cast<cudaStream_t>(stream.handle())),
             "ncclAllGather",
             comm_of(communicator_));
}

std::string nccl_version() {
  int version = 0;
  check_nccl(ncclGetVersion(&version), "ncclGetVersion");
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

}  // namespace stepsim::cuda
