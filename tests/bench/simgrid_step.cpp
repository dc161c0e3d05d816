// Ten training steps as SimGrid (S4U) plays them, for simgrid_step.py: every message of every ring
// all-reduce. The same step as scenarios/engines_step.toml.
//
// usage: simgrid_step RANKS STEPS
//
// Prints the simulated end of the last step in seconds.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <simgrid/s4u.hpp>

namespace s4u = simgrid::s4u;

namespace {

constexpr int kLayers = 12;
constexpr double kForward = 1e-3;   // Seconds of a layer.
constexpr double kBackward = 2e-3;  // Likewise.
constexpr double kOptimizer = 1.5e-3;
constexpr double kBucketBytes = 28'311'552;
constexpr double kSkew = 0.2;  // The last rank computes so much longer than the first.
constexpr double kLinkBytesPerSecond = 100e9;
constexpr double kLinkLatency = 2e-6;

int token;  // What messages carry: their sizes are all that counts.

/// A ring all-reduce in chunks: first each chunk is reduced on its way around, then sent on.
void all_reduce(int rank, int ranks) {
  s4u::Mailbox* to = s4u::Mailbox::by_name("ring" + std::to_string((rank + 1) % ranks));
  s4u::Mailbox* from = s4u::Mailbox::by_name("ring" + std::to_string(rank));
  for (int round = 0; round < 2 * (ranks - 1); ++round) {
    void* received = nullptr;
    const s4u::CommPtr receiving = from->get_async<void>(&received);
    const s4u::CommPtr sending =
        to->put_async(&token, static_cast<std::uint64_t>(kBucketBytes / ranks));
    sending->wait();
    receiving->wait();
  }
}

/// The communication stream: one all-reduce after another, each when its bucket is full.
void communicate(int rank, int ranks, int steps) {
  s4u::Mailbox* full = s4u::Mailbox::by_name("full" + std::to_string(rank));
  s4u::Mailbox* reduced = s4u::Mailbox::by_name("reduced" + std::to_string(rank));
  for (int step = 0; step < steps; ++step) {
    for (int bucket = 0; bucket < kLayers; ++bucket) {
      full->get<void>();
      all_reduce(rank, ranks);
    }
    reduced->put_init(&token, 0)->detach();
  }
}

void compute(int rank, int ranks, int steps) {
  s4u::Mailbox* full = s4u::Mailbox::by_name("full" + std::to_string(rank));
  s4u::Mailbox* reduced = s4u::Mailbox::by_name("reduced" + std::to_string(rank));
  const double slowness = 1 + kSkew * rank / (ranks - 1);
  for (int step = 0; step < steps; ++step) {
    s4u::this_actor::sleep_for(kLayers * kForward * slowness);
    for (int bucket = 0; bucket < kLayers; ++bucket) {
      s4u::this_actor::sleep_for(kBackward * slowness);
      full->put_init(&token, 0)->detach();
    }
    reduced->get<void>();
    s4u::this_actor::sleep_for(kOptimizer);
  }
}

}  // namespace

int main(int argc, char** argv) {
  s4u::Engine engine(&argc, argv);
  s4u::Engine::set_config("network/model:CM02");
  s4u::Engine::set_config("network/crosstraffic:0");
  s4u::Engine::set_config("network/TCP-gamma:0");
  s4u::Engine::set_config("contexts/stack-size:16");
  if (argc != 3) {
    std::fprintf(stderr, "usage: simgrid_step RANKS STEPS\n");
    return 2;
  }
  const int ranks = std::atoi(argv[1]);
  const int steps = std::atoi(argv[2]);
  auto* zone = s4u::create_full_zone("ring");
  std::vector<s4u::Host*> hosts;
  for (int rank = 0; rank < ranks; ++rank) {
    hosts.push_back(zone->create_host("rank" + std::to_string(rank), 1e9));
  }
  // A message to oneself stands for an event on a rank: it takes no time.
  for (int rank = 0; rank < ranks; ++rank) {
    auto* link = zone->create_link("link" + std::to_string(rank), kLinkBytesPerSecond);
    link->set_latency(kLinkLatency);
    zone->add_route(hosts[rank]->get_netpoint(),
                    hosts[(rank + 1) % ranks]->get_netpoint(),
                    nullptr,
                    nullptr,
                    {s4u::LinkInRoute(link)},
                    false);
    auto* own = zone->create_link("own" + std::to_string(rank), 1e18);
    zone->add_route(hosts[rank]->get_netpoint(),
                    hosts[rank]->get_netpoint(),
                    nullptr,
                    nullptr,
                    {s4u::LinkInRoute(own)},
                    false);
  }
  zone->seal();
  for (int rank = 0; rank < ranks; ++rank) {
    s4u::Actor::create("compute", hosts[rank], compute, rank, ranks, steps);
    s4u::Actor::create("communicate", hosts[rank], communicate, rank, ranks, steps);
  }
  engine.run();
  std::printf("%.9f\n", s4u::Engine::get_clock());
  return 0;
}
