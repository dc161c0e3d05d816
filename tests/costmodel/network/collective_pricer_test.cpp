#include "costmodel/network/collective_pricer.h"

#include <cmath>

#include <doctest/doctest.h>

#include "costmodel/network/collective_table.h"
#include "costmodel/records/profile_cost_model.h"
#include "tests/approx.h"
#include "tests/costmodel/helpers.h"

using namespace stepsim;
using stepsim::test::error_of;
using Kind = CollectiveKind;
using stepsim::test::Approx;

namespace {

/// 1 KiB and 4 KiB, in seconds.
CollectiveCost table(int ranks, int nodes, double at_1_kib, double at_4_kib) {
  CollectiveCost cost;
  cost.ranks = ranks;
  cost.nodes = nodes;
  cost.knots = {{1024, at_1_kib}, {4096, at_4_kib}};
  cost.errors.random = 0.02;
  cost.errors.bias = 0.01;
  return cost;
}

Profile profile() {
  Profile lab;
  lab.name = "lab";
  lab.collectives = {table(8, 1, 4e-5, 8e-5), table(2, 1, 1e-5, 3e-5), table(16, 2, 1e-4, 2e-4)};
  return lab;
}

Topology topology() {
  Topology links;
  links.placement = Placement::filled(64, 8);
  links.intra = {2e-6, 300e9};
  links.inter = {10e-6, 25e9};
  return links;
}

std::string refusal(const CollectivePricer& pricer, Kind kind, int ranks, int nodes) {
  return error_of([&] { (void)pricer.price(kind, Bytes(1024), ranks, nodes); });
}

}  // namespace

TEST_CASE("a table for exactly these ranks and nodes is the price") {
  const CollectivePrice price =
      collective_pricer(profile(), topology()).price(Kind::AllReduce, Bytes(2560), 2, 1);
  CHECK(price.text == "measured table, 2 ranks");
  CHECK(price.source == CollectiveSource::MeasuredTable);
  CHECK(price.cost.seconds == Approx(2e-5));
  CHECK(price.cost.relative_error == 0.02);
  CHECK(price.cost.extrapolation == 1);
  CHECK_FALSE(price.cost.unseen_shape);
  const CollectivePrice nodes =
      collective_pricer(profile()).price(Kind::AllReduce, Bytes(1024), 16, 2);
  CHECK(nodes.text == "measured table, 16 ranks on 2 nodes");
  CHECK(nodes.cost.seconds == 1e-4);
}

TEST_CASE("one rank costs nothing, without any source") {
  CHECK(collective_pricer(Profile{}).price(Kind::AllReduce, Bytes(1 << 30), 1, 1).cost.seconds ==
        0);
}

TEST_CASE("between measured numbers of ranks a price is linear in log2(ranks) and flagged") {
  const CollectivePrice price =
      collective_pricer(profile(), topology()).price(Kind::AllReduce, Bytes(1024), 4, 1);
  CHECK(price.text == "interpolated between 2 and 8 ranks");
  CHECK(price.source == CollectiveSource::InterpolatedRanks);
  CHECK(price.cost.seconds == Approx((1e-5 + 4e-5) / 2));
  CHECK(price.cost.unseen_shape);
  CHECK(price.cost.relative_error == 0.15);
  CHECK(price.cost.shared_error == 0.15);
  CHECK(price.cost.extrapolation == 1);
  // Two doublings from either neighbour: 0.3 * 2 * 2 / 4.
  Profile wide = profile();
  std::erase_if(wide.collectives, [](const CollectiveCost& cost) { return cost.ranks == 8; });
  wide.collectives.push_back(table(32, 1, 3e-4, 6e-4));
  CHECK(collective_pricer(wide).price(Kind::AllReduce, Bytes(1024), 8, 1).cost.shared_error ==
        Approx(0.3));
}

TEST_CASE("up to twice the largest number of ranks a price goes on by log2(ranks), not further") {
  const CollectivePricer pricer = collective_pricer(profile());
  const CollectivePrice price = pricer.price(Kind::AllReduce, Bytes(1024), 16, 1);
  CHECK(price.text == "extrapolated by log2(ranks) from 2 to 8 ranks");
  CHECK(price.source == CollectiveSource::ExtrapolatedRanks);
  CHECK(price.cost.seconds == Approx(5.5e-5));  // 1.5e-5 for each doubling.
  CHECK(price.cost.extrapolation == 2);
  CHECK(price.cost.unseen_shape);
  CHECK(price.cost.relative_error == Approx(0.15));  // 1 KiB: half of that of a large bucket.
  CHECK(
      refusal(pricer, Kind::AllReduce, 17, 1) ==
      "profile lab has no all_reduce of 17 ranks; it has those of 2 ranks, 8 ranks, 16 ranks on 2 "
      "nodes; more than 2 times the measured ranks is refused: measure it with: stepcal "
      "measure --plan PLAN.jsonl --out SAMPLES.jsonl, stepcal fit SAMPLES.jsonl --base "
      "PROFILE.json; "
      "or write the measured times in cluster.all_reduce or the links in [cluster.topology], as "
      "algorithm = \"nccl\" with channels and those of a data sheet");
  const CollectivePricer allowed =
      collective_pricer(profile(), std::nullopt, {.max_rank_factor = 8});
  const CollectivePrice far = allowed.price(Kind::AllReduce, Bytes(1024), 64, 1);
  CHECK(far.cost.seconds == Approx(8.5e-5));
  // Three doublings.
  CHECK(far.cost.relative_error == Approx(0.15 * std::sqrt(3.0)));
  CHECK(far.cost.extrapolation == 8);
}

TEST_CASE("extrapolation to more ranks on several nodes needs two tables of as many per node") {
  Profile lab = profile();
  CHECK(refusal(collective_pricer(lab), Kind::AllReduce, 32, 4) != "no error");
  lab.collectives.push_back(table(64, 8, 3e-4, 6e-4));
  const CollectivePrice price = collective_pricer(lab).price(Kind::AllReduce, Bytes(1024), 32, 4);
  CHECK(price.text == "interpolated between 16 and 64 ranks");
  CHECK(price.cost.seconds == Approx(2e-4));
  CHECK(refusal(collective_pricer(lab), Kind::AllReduce, 32, 2) != "no error");
  CHECK(refusal(collective_pricer(lab), Kind::AllReduce, 8, 2) != "no error");
}

TEST_CASE("other kinds are priced by the bytes on a ring, unless they were measured") {
  Profile lab = profile();
  const CollectivePrice half =
      collective_pricer(lab, topology()).price(Kind::ReduceScatter, Bytes(4096), 8, 1);
  CHECK(half.text == "all_reduce by the bytes on a ring: measured table, 8 ranks");
  CHECK(half.cost.seconds == Approx(4e-5));
  CHECK(half.cost.unseen_shape);
  CHECK(half.cost.relative_error == kUnmeasuredKindError);
  CHECK(collective_pricer(lab).price(Kind::Broadcast, Bytes(4096), 8, 1).cost.seconds ==
        Approx(8e-5 / 1.75));
  CollectiveCost gather = table(8, 1, 5e-5, 7e-5);
  gather.kind = "all_gather";
  lab.collectives.push_back(gather);
  const CollectivePrice measured = collective_pricer(lab).price(Kind::AllGather, Bytes(4096), 8, 1);
  CHECK(measured.text == "measured table, 8 ranks");
  CHECK(measured.cost.seconds == 7e-5);
}

TEST_CASE("what no table reaches comes from the links of the topology, flagged") {
  const CollectivePricer pricer = collective_pricer(profile(), topology());
  const CollectivePrice price = pricer.price(Kind::AllReduce, Bytes(100'000'000), 64, 8);
  CHECK(price.text == "analytic: double binary tree, 8 nodes x 8");
  CHECK(price.source == CollectiveSource::Analytic);
  CHECK(price.cost.seconds == analytic_time(topology(), Kind::AllReduce, 1e8, 64, 8).seconds);
  CHECK(price.cost.unseen_shape);
  CHECK(price.cost.relative_error == 0.45);
  Topology levels = topology();
  levels.algorithm = CollectiveAlgorithm::Hierarchical;
  const CollectivePricer bare = collective_pricer(Profile{}, levels);
  CHECK(bare.price(Kind::AllReduce, Bytes(1), 16, 2).text ==
        "analytic: two-level ring, 2 nodes x 8");
  CHECK(bare.price(Kind::AllReduce, Bytes(1), 8, 1).text == "analytic: ring, 8 ranks on one node");
  CHECK(bare.price(Kind::AllReduce, Bytes(1), 15, 2).text ==
        "analytic: flat ring, 15 ranks on 2 nodes");
  CHECK(bare.price(Kind::AllToAll, Bytes(1), 16, 2).text ==
        "analytic: pairwise exchange, 2 nodes x 8");
}

TEST_CASE("NCCL's own model prices where the topology asks for it what it knows") {
  Topology nccl = topology();
  nccl.algorithm = CollectiveAlgorithm::Nccl;
  nccl.nccl_channels = 8;
  const CollectivePricer pricer = collective_pricer(Profile{}, nccl);
  CHECK(pricer.price(Kind::AllReduce, Bytes(1 << 20), 64, 8).cost.relative_error == 0.32);
  CHECK(pricer.price(Kind::AllReduce, Bytes(1 << 30), 64, 8).text ==
        "NCCL 2.28.9 tuning model: Ring/Simple");
  CHECK(pricer.price(Kind::AllReduce, Bytes(64), 64, 8).text ==
        "NCCL 2.28.9 tuning model: Tree/LL");
  CHECK(pricer.price(Kind::AllGather, Bytes(64), 64, 8).text ==
        "NCCL 2.28.9 tuning model: Ring/LL");
  CHECK(pricer.price(Kind::Broadcast, Bytes(64), 64, 8).text == "analytic: flat ring, 8 nodes x 8");
}

TEST_CASE("sizes far outside a table are refused in every way of using it") {
  const CollectivePricer pricer = collective_pricer(profile(), topology());
  const auto message = [&pricer](int ranks) {
    return error_of([&] { (void)pricer.price(Kind::AllReduce, Bytes(1 << 20), ranks, 1); });
  };
  CHECK(message(2) ==
        "profile lab: the all_reduce of 2 ranks was measured from 1 KiB to 4 KiB; 1 MiB is 256.00 "
        "times beyond, and more than 4 times is refused: measure larger messages");
  CHECK(message(4) == message(2));
  CHECK(message(16).find("measure larger messages") != std::string::npos);
  const CollectivePrice beyond = pricer.price(Kind::AllReduce, Bytes(8192), 4, 1);
  CHECK(beyond.cost.extrapolation == 2);
}

TEST_CASE("below the first knot: its value to 32 KiB, a line above, then refused") {
  CollectiveCost cost = table(2, 1, 0, 0);
  cost.knots = {{32768, 1e-4}, {65536, 2e-4}};
  CHECK(table_cost(cost, Bytes(1), 4, "lab").seconds == 1e-4);
  CHECK(table_cost(cost, Bytes(1), 4, "lab").extrapolation == 1);
  cost.errors.random = 0.01;
  const auto half = [&](const Knots& knots) {
    cost.knots = knots;
    return table_cost(cost, Bytes(65536), 4, "lab");
  };
  CHECK(half({{131072, 1e-4}, {262144, 1.5e-4}}).seconds == Approx(0.75e-4));
  CHECK(half({{131072, 1e-4}, {262144, 3e-4}}).seconds == Approx(0.5e-4));
  CHECK(half({{131072, 1e-4}, {262144, 0.9e-4}}).seconds == Approx(1e-4));
  CHECK(half({{131072, 1e-4}}).seconds == Approx(0.75e-4));
  const Cost below = half({{131072, 1e-4}, {262144, 1.5e-4}});
  CHECK(below.extrapolation == 2);
  CHECK(below.smaller);
  CHECK(below.relative_error == Approx(0.01 + 0.18));
  CHECK(below.shared_error == below.relative_error);
  const Cost scalar = table_cost(cost, Bytes(1), 4, "lab");
  CHECK(scalar.extrapolation == 4);
  CHECK(scalar.seconds == Approx(0.625e-4));  // That of 32 KiB.
  cost.knots = {{1048576, 1e-4}, {2097152, 2e-4}};
  CHECK(error_of([&] { (void)table_cost(cost, Bytes(131072), 4, "lab"); }) ==
        "profile lab: the all_reduce of 2 ranks was measured from 1 MiB to 2 MiB; 128 KiB is 8.00 "
        "times below, and more than 4 times is refused: measure smaller messages");
  // Bucket indices and scalars are no reason to refuse a step.
  CHECK(table_cost(cost, Bytes(208), 4, "lab").seconds == Approx(1e-4 / 32));
  CHECK(table_cost(cost, Bytes(208), 4, "lab").relative_error == 1);
}

TEST_CASE("without any source the message says what to write") {
  CHECK(
      refusal(collective_pricer(Profile{}), Kind::AllGather, 4, 2) ==
      "profile  has no all_gather of 4 ranks on 2 nodes; it has no other: measure it with: stepcal "
      "measure --plan PLAN.jsonl --out SAMPLES.jsonl, stepcal fit SAMPLES.jsonl --base "
      "PROFILE.json; or write the measured times in cluster.all_reduce or the links in "
      "[cluster.topology], as algorithm = \"nccl\" with channels and those of a data sheet");
  CHECK(refusal(collective_pricer(Profile{}), Kind::AllGather, 4, 0) ==
        "4 ranks do not fill 0 nodes");
  CHECK(refusal(collective_pricer(Profile{}), Kind::AllGather, 1, 2) ==
        "1 ranks do not fill 2 nodes");
}

TEST_CASE("the scatter of single collectives is that of the measured table, if there is one") {
  Profile lab = profile();
  lab.collectives[1].spread = {0.5, 1, 1.5};
  const CollectivePricer pricer = collective_pricer(lab, topology());
  CHECK(pricer.spread(Kind::AllReduce, 2, 1) == std::vector<double>{0.5, 1, 1.5});
  CHECK(pricer.spread(Kind::AllReduce, 2, 2).empty());
  CHECK(pricer.spread(Kind::AllGather, 2, 1).empty());
  CHECK(pricer.spread(Kind::AllReduce, 4, 1).empty());
  CHECK(pricer.spread(Kind::AllReduce, 1, 1).empty());
}

TEST_CASE("a table replaces those of its kind, ranks and nodes") {
  Profile lab = profile();
  replace_table(lab, table(2, 1, 7e-5, 9e-5));
  CHECK(lab.collectives.size() == 3);
  CHECK(collective_pricer(lab).price(Kind::AllReduce, Bytes(1), 2, 1).cost.seconds == 7e-5);
  replace_table(lab, table(2, 2, 6e-5, 9e-5));
  CHECK(lab.collectives.size() == 4);
  CHECK(collective_pricer(lab).price(Kind::AllReduce, Bytes(1), 2, 1).cost.seconds == 7e-5);
}
