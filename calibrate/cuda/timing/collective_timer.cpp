#include "calibrate/cuda/timing/collective_timer.h"

#include "costmodel/base/input_error.h"

namespace stepsim::cuda {

void put_collective(NcclGroup& group,
                    const Stream& stream,
                    CollectiveKind kind,
                    Array data,
                    std::int64_t elements) {
  switch (kind) {
    case CollectiveKind::AllReduce:
      group.all_reduce(stream, data, elements);
      return;
    case CollectiveKind::ReduceScatter:
      group.reduce_scatter(stream, data, elements);
      return;
    case CollectiveKind::AllGather:
      group.all_gather(stream, data, elements);
      return;
    default:
      throw EnvironmentFault("the CUDA backend has no collective " + std::string(name_of(kind)));
  }
}

std::vector<CollectiveKind> cuda_collectives() {
  return {CollectiveKind::AllReduce, CollectiveKind::ReduceScatter, CollectiveKind::AllGather};
}

CollectiveTimer::CollectiveTimer(NcclGroup& group, const Stream& stream)
    : group_(group), stream_(stream), token_(sizeof(float)) {
  set_zero(stream_, token_.data(), sizeof(float));
}

std::optional<double> CollectiveTimer::seconds(CollectiveKind kind,
                                               Dtype dtype,
                                               std::int64_t bytes,
                                               int calls) {
  const std::int64_t unit = element_size(dtype) * group_.ranks();
  const std::int64_t whole = (bytes + unit - 1) / unit * unit;
  const auto size = static_cast<std::size_t>(whole);
  if (message_.bytes() < size) {
    message_.reserve(size);
    set_zero(stream_, message_.data(), size);
  }
  const Array data{message_.data(), dtype};
  const std::int64_t elements = whole / element_size(dtype);
  meet(kind, data, elements);
  hold_.start();
  hold_.hold(stream_);
  put_barrier();
  begin_.record(stream_);
  for (int call = 0; call < calls; ++call) {
    put_collective(group_, stream_, kind, data, elements);
  }
  end_.record(stream_);
  hold_.release();
  stream_.synchronize();
  return hold_.expired() ? std::nullopt : std::optional(seconds_between(begin_, end_));
}

void CollectiveTimer::meet(CollectiveKind kind, Array data, std::int64_t elements) {
  if (met_.emplace(kind, data.dtype, elements).second) {
    put_barrier();
    put_collective(group_, stream_, kind, data, elements);
    stream_.synchronize();
  }
}

void CollectiveTimer::barrier() {
  put_barrier();
  stream_.synchronize();
}

void CollectiveTimer::put_barrier() {
  group_.all_reduce(stream_, {token_.data(), Dtype::F32}, 1);
}

}  // namespace stepsim::cuda
