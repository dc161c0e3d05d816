#include "sim/batching/sampler.h"

#include "costmodel/base/input_error.h"
#include "sim/batching/algorithms/samples.h"

namespace stepsim {
namespace {

std::vector<std::int64_t> shuffled(const SamplerSpec& spec,
                                   std::size_t count,
                                   std::uint64_t seed,
                                   PythonRandom& random) {
  if (spec.shuffle && spec.kind == SamplerSpec::Kind::Distributed) {
    return torch_randperm(static_cast<std::int64_t>(count), seed);
  }
  SampleIds order = all_samples(count);
  if (spec.shuffle) {
    random.shuffle(std::span(order));
  }
  return order;
}

}  // namespace

void fit_to_ranks(std::vector<std::int64_t>& order, std::size_t ranks, bool pad) {
  const std::size_t count = order.size();
  if (!pad) {
    order.resize(count / ranks * ranks);
    return;
  }
  const std::size_t padded = (count + ranks - 1) / ranks * ranks;
  order.reserve(padded);
  for (std::size_t i = count; i < padded; ++i) {
    order.push_back(order[i - count]);
  }
}

std::vector<RankOrder> rank_orders(const SamplerSpec& spec,
                                   std::int64_t sample_count,
                                   int ranks,
                                   int epoch) {
  if (sample_count < 1) {
    throw InputError("the data set is empty: there is no sample to put into a batch");
  }
  if (ranks < 1 || epoch < 0) {
    throw InputError(
        "sampler: {} ranks, epoch {}: need at least one rank and an epoch "
        "from 0 on",
        ranks,
        epoch);
  }
  const std::uint64_t seed = spec.seed + static_cast<std::uint64_t>(epoch);
  PythonRandom random(seed);
  auto order = shuffled(spec, static_cast<std::size_t>(sample_count), seed, random);
  const auto stride = static_cast<std::size_t>(ranks);
  if (spec.drop_last || spec.kind == SamplerSpec::Kind::Distributed) {
    fit_to_ranks(order, stride, !spec.drop_last);
  }

  std::vector<RankOrder> result(stride, RankOrder{{}, random});
  for (RankOrder& rank : result) {
    rank.samples.reserve((order.size() + stride - 1) / stride);
  }
  for (std::size_t i = 0; i < order.size(); ++i) {
    result[i % stride].samples.push_back(order[i]);
  }
  return result;
}

RankOrder rank_order(
    const SamplerSpec& spec, std::int64_t sample_count, int ranks, int rank, int epoch) {
  return rank_orders(spec, sample_count, ranks, epoch).at(static_cast<std::size_t>(rank));
}

}  // namespace stepsim
