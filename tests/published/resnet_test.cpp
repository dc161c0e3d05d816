#include "tests/published/resnet.h"

#include <map>
#include <utility>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "costmodel/io/csv_table.h"
#include "costmodel/io/json_file.h"
#include "tests/approx.h"
#include "tests/published/predicted.h"
#include "tests/test_data.h"

using namespace stepsim;
using namespace stepsim::published;
using stepsim::test::Approx;

TEST_CASE("the tensors of ResNet-50 are those recorded, in their order") {
  const auto path = test::data_file("traces/resnet50_1xV100/parameters.csv");
  if (!path) {
    return;
  }
  const CsvTable table(*path);
  const auto tensors = resnet_tensors(resnets().front(), 32);
  REQUIRE(tensors.size() == table.rows());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    CHECK(tensors[i].name == table.text(i, table.column("name")));
    CHECK(fmt::format("{}", fmt::join(tensors[i].shape, "x")) ==
          table.text(i, table.column("shape")));
  }
}

TEST_CASE("parameters and operations of all four are those that torchvision states") {
  // Parameters, and multiply-adds of one image in 10^9.
  const std::map<std::string, std::pair<std::int64_t, double>> stated = {
      {"resnet50", {25'557'032, 4.09}},
      {"resnet101", {44'549'160, 7.80}},
      {"resnext50_32x4d", {25'028'904, 4.23}},
      {"resnext101_32x8d", {88'791'336, 16.41}}};
  REQUIRE(resnets().size() == stated.size());
  for (const ResNet& net : resnets()) {
    CAPTURE(net.name);
    std::int64_t parameters = 0;
    double flops = 0;
    double backward = 0;
    for (const LayerTensor& tensor : resnet_tensors(net, 1)) {
      parameters += tensor.elements();
      flops += tensor.forward.flops;
      backward += tensor.backward.flops;
    }
    CHECK(parameters == stated.at(net.name).first);
    CHECK(std::abs(flops / 2e9 - stated.at(net.name).second) < 0.0051);
    // Two gradients each, but for the images'.
    const double first = 2.0 * 64 * 3 * 7 * 7 * 112 * 112;
    CHECK(backward == Approx(2 * flops - first));
  }
}

TEST_CASE("the lists of scenarios/published are those of the networks") {
  for (const ResNet& net : resnets()) {
    CAPTURE(net.name);
    const bool same = read_text(published_file(net.name + ".csv")) ==
                      tensors_csv(resnet_tensors(net, 32), Weighting::Roofline);
    CHECK(same);
  }
}
