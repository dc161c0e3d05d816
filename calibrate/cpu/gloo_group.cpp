#include "calibrate/cpu/gloo_group.h"

#include <algorithm>
#include <exception>
#include <functional>
#include <vector>

#include <fmt/core.h>
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/config.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include "costmodel/base/input_error.h"

namespace stepsim {

struct GlooGroup::State {
  int rank = 0;
  int ranks = 1;
  unsigned tag = 0;  ///< Of the last collective, the same on all ranks.
  std::shared_ptr<gloo::rendezvous::Context> context;  ///< Null with one rank.
};

namespace {

/// PyTorch's choice: one device. On one host the loopback interface never leaves the machine.
std::shared_ptr<gloo::transport::Device> loopback_device() {
  gloo::transport::tcp::attr attributes;
  attributes.hostname = "127.0.0.1";
  return gloo::transport::tcp::CreateDevice(attributes);
}

[[noreturn]] void fail(const char* what, int rank, int ranks, const std::exception& error) {
  throw EnvironmentFault("gloo: {} failed on rank {} of {}: {}", what, rank, ranks, error.what());
}

}  // namespace

GlooGroup::GlooGroup(int rank,
                     int ranks,
                     const std::string& folder,
                     std::chrono::milliseconds timeout)
    : state_(std::make_unique<State>()) {
  state_->rank = rank;
  state_->ranks = ranks;
  if (ranks == 1) {
    return;
  }
  try {
    auto device = loopback_device();
    gloo::rendezvous::FileStore store(folder);
    state_->context = std::make_shared<gloo::rendezvous::Context>(rank, ranks);
    state_->context->setTimeout(timeout);
    state_->context->connectFullMesh(store, device);
  } catch (const std::exception& error) {
    fail("connecting the ranks", rank, ranks, error);
  }
}

GlooGroup::~GlooGroup() = default;

int GlooGroup::ranks() const {
  return state_->ranks;
}

/// Runs one collective between several ranks; `what` names it where it fails.
void GlooGroup::run(const char* what, const std::function<void(unsigned tag)>& collective) {
  if (state_->context == nullptr) {
    return;
  }
  try {
    collective(++state_->tag);
  } catch (const std::exception& error) {
    fail(what, state_->rank, state_->ranks, error);
  }
}

void GlooGroup::all_reduce(float* data, std::size_t count) {
  if (count == 0) {
    return;
  }
  run("all-reduce", [&](unsigned tag) {
    gloo::AllreduceOptions options(state_->context);
    options.setAlgorithm(gloo::AllreduceOptions::Algorithm::RING);
    options.setOutput(data, count);
    options.setReduceFunction([](void* out, const void* a, const void* b, std::size_t n) {
      gloo::sum<float>(out, a, b, n);
    });
    options.setTag(tag);
    gloo::allreduce(options);
  });
}

void GlooGroup::reduce_scatter(float* data, std::size_t count) {
  std::vector<float> copy(data, data + count);
  all_reduce(copy.data(), count);
  const std::size_t share = count / static_cast<std::size_t>(state_->ranks);
  const std::size_t mine = share * static_cast<std::size_t>(state_->rank);
  std::copy_n(copy.data() + mine, share, data + mine);
}

void GlooGroup::all_gather(float* data, std::size_t count) {
  if (count == 0) {
    return;
  }
  run("all-gather", [&](unsigned tag) {
    gloo::AllgatherOptions options(state_->context);
    options.setOutput(data, count);  // Without an input each rank's share is in its place.
    options.setTag(tag);
    gloo::allgather(options);
  });
}

void GlooGroup::barrier() {
  run("barrier", [&](unsigned tag) {
    gloo::BarrierOptions options(state_->context);
    options.setTag(tag);
    gloo::barrier(options);
  });
}

std::string gloo_version() {
  return fmt::format("{}.{}.{}", GLOO_VERSION_MAJOR, GLOO_VERSION_MINOR, GLOO_VERSION_PATCH);
}

}  // namespace stepsim
